//! Reads the model aliases of a route.

use std::sync::Arc;

use super::reader::{Reader, short};
use super::scalar::{refuse, usable};
use crate::aliases::{AliasFlaw, Aliases, NAME_MAX};
use crate::options::Meta;
use crate::tree::{Node, Value};

/// The largest number of aliases. A request without an exact alias tries every pattern.
const ALIASES_MAX: usize = 1024;

/// Reads `asked: served` pairs.
pub(crate) fn aliases(reader: &mut Reader, node: &Node, meta: &Meta) -> Option<Arc<Aliases>> {
    let Value::Map(pairs) = &node.value else {
        return refuse(reader, node, meta);
    };
    if pairs.len() > ALIASES_MAX {
        let message = format!("{} aliases; at most {ALIASES_MAX} are allowed", pairs.len());
        reader.error(node.span.clone(), message);
        return None;
    }
    let is_name = |text: &str| !text.trim().is_empty() && text.len() <= NAME_MAX;
    let mut names: Vec<(Arc<str>, Arc<str>)> = Vec::with_capacity(pairs.len());
    let mut good = true;
    for (index, (asked, value)) in pairs.iter().enumerate() {
        let before = &pairs[..index];
        if let Some((first, _)) = before.iter().find(|(other, _)| other.text == asked.text) {
            let message = format!("the model `{}` is here twice", short(&asked.text));
            reader
                .error(asked.span.clone(), message)
                .label(first.span.clone(), "first here");
            good = false;
        }
        let served = usable(value).filter(|scalar| !scalar.is_null());
        let served = served.map(|scalar| scalar.text.as_str());
        match served.filter(|text| is_name(text) && is_name(&asked.text)) {
            Some(served) => names.push((asked.text.as_str().into(), served.into())),
            None => {
                reader.key(&asked.text, |reader| {
                    reader.unexpected(value, "the name of a model, 1 to 256 bytes");
                });
                good = false;
            }
        }
    }
    if !good {
        return None;
    }
    match Aliases::new(names) {
        Ok(aliases) => Some(Arc::new(aliases)),
        Err((index, flaw)) => {
            let asked = &pairs[index].0;
            reader.error(asked.span.clone(), said(&asked.text, &flaw));
            None
        }
    }
}

fn said(asked: &str, flaw: &AliasFlaw) -> String {
    let asked = short(asked);
    match flaw {
        AliasFlaw::Loop(chain) => {
            let chain: Vec<_> = chain.iter().map(|name| short(name)).collect();
            format!("the aliases go in a loop: {}", chain.join(" → "))
        }
        AliasFlaw::Stars => format!("`{asked}`: each name may have one `*`"),
        AliasFlaw::NothingToFill => {
            format!("`{asked}`: the served name has a `*`, so the asked-for name needs one too")
        }
    }
}
