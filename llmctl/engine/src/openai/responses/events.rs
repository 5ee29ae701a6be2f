//! The events of a streamed response, each with its number in the sequence.

use serde_json::{Value, json};

use super::{Reply, part};
use crate::generate::Usage;
use crate::reply::{Api, End, Events};

impl Reply {
    fn emit(&mut self, kind: &str, mut event: Value, out: &mut Events) {
        event["type"] = json!(kind);
        event["sequence_number"] = json!(self.sequence);
        self.sequence += 1;
        out.named(kind, &event);
    }

    /// An event about the text or the arguments of the one output item.
    fn emit_content(&mut self, kind: &str, key: &str, value: Value, out: &mut Events) {
        let mut event = json!({"item_id": self.item_id, "output_index": 0});
        if self.call.is_none() {
            event["content_index"] = json!(0);
            if key != "part" {
                event["logprobs"] = json!([]);
            }
        }
        event[key] = value;
        self.emit(kind, event, out);
    }
}

impl Api for Reply {
    fn whole(&self, end: &End) -> Value {
        let document = self.document(Some(end));
        self.remember(&document);
        document
    }

    fn start(&mut self, _: Usage, out: &mut Events) {
        let response = json!({"response": self.document(None)});
        self.emit("response.created", response.clone(), out);
        self.emit("response.in_progress", response, out);
        let item = json!({"output_index": 0, "item": self.item("in_progress", None)});
        self.emit("response.output_item.added", item, out);
        if self.call.is_none() {
            self.emit_content("response.content_part.added", "part", part(""), out);
        }
    }

    fn piece(&mut self, text: &str, out: &mut Events) {
        let kind = match self.call {
            None => "response.output_text.delta",
            Some(_) => "response.function_call_arguments.delta",
        };
        self.emit_content(kind, "delta", json!(text), out);
    }

    fn end(&mut self, end: &End, out: &mut Events) {
        if self.call.is_none() {
            self.emit_content("response.output_text.done", "text", json!(end.text), out);
            self.emit_content("response.content_part.done", "part", part(&end.text), out);
        } else {
            let kind = "response.function_call_arguments.done";
            self.emit_content(kind, "arguments", json!(end.text), out);
        }
        let document = self.document(Some(end));
        self.remember(&document);
        let item = json!({"output_index": 0, "item": document["output"][0]});
        self.emit("response.output_item.done", item, out);
        // vLLM sends this event also when the limit was reached; the status inside tells the
        // difference.
        self.emit("response.completed", json!({"response": document}), out);
    }
}
