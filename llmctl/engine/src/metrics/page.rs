//! The text format of a page: families, then their samples.

use std::fmt::{Arguments, Write as _};

use super::number;
use crate::stats::Histogram;

/// A page under construction.
#[derive(Debug, Default)]
pub(crate) struct Page {
    text: String,
    /// Rendered labels of every sample, without braces; empty = none.
    labels: String,
}

impl Page {
    /// A page whose samples all carry these labels (name and value).
    pub(crate) fn labelled(labels: &[(&str, &str)]) -> Self {
        let labels: Vec<String> = labels
            .iter()
            .map(|(name, value)| label(name, value))
            .collect();
        Self {
            labels: labels.join(","),
            ..Self::default()
        }
    }

    pub(crate) fn into_text(self) -> String {
        self.text
    }

    /// Starts a family; its samples follow.
    pub(crate) fn family(&mut self, name: &str, kind: &str, help: &str) {
        self.push(format_args!("# HELP {name} {help}\n# TYPE {name} {kind}\n"));
    }

    pub(crate) fn gauge(&mut self, name: &str, help: &str, value: f64) {
        self.family(name, "gauge", help);
        self.sample(name, &[], value);
    }

    pub(crate) fn counter(&mut self, name: &str, help: &str, value: f64) {
        self.family(name, "counter", help);
        self.sample(name, &[], value);
    }

    pub(crate) fn histogram(&mut self, name: &str, help: &str, histogram: &Histogram) {
        self.family(name, "histogram", help);
        let bucket = format!("{name}_bucket");
        for (bound, count) in histogram.cumulative() {
            self.sample(&bucket, &[("le", &format!("{bound:?}"))], number(count));
        }
        self.sample(&bucket, &[("le", "+Inf")], number(histogram.count));
        self.sample(&format!("{name}_count"), &[], number(histogram.count));
        self.sample(&format!("{name}_sum"), &[], histogram.sum);
    }

    pub(crate) fn sample(&mut self, name: &str, own: &[(&str, &str)], value: f64) {
        let mut labels = self.labels.clone();
        for (name, value) in own {
            if !labels.is_empty() {
                labels.push(',');
            }
            labels.push_str(&label(name, value));
        }
        if labels.is_empty() {
            // llama.cpp prints whole numbers as `1`, Python's client as `1.0`.
            self.push(format_args!("{name} {value}\n"));
        } else {
            self.push(format_args!("{name}{{{labels}}} {value:?}\n"));
        }
    }

    fn push(&mut self, args: Arguments<'_>) {
        self.text
            .write_fmt(args)
            .expect("a String takes every write");
    }
}

fn label(name: &str, value: &str) -> String {
    let value = value
        .replace('\\', "\\\\")
        .replace('"', "\\\"")
        .replace('\n', "\\n");
    format!("{name}=\"{value}\"")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn labels_are_joined_and_escaped() {
        let mut page = Page::labelled(&[("model_name", "a\"b\\c")]);
        page.gauge("g", "Help.", 1.0);
        page.sample("g", &[("reason", "x")], 0.5);
        assert_eq!(
            page.into_text(),
            "# HELP g Help.\n# TYPE g gauge\ng{model_name=\"a\\\"b\\\\c\"} 1.0\n\
             g{model_name=\"a\\\"b\\\\c\",reason=\"x\"} 0.5\n"
        );
    }

    #[test]
    fn a_page_without_labels_has_bare_numbers() {
        let mut page = Page::default();
        page.counter("c_total", "Help.", 3.0);
        assert!(page.into_text().ends_with("\nc_total 3\n"));
    }
}
