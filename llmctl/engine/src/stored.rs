//! Objects that the engine stores until it ends: responses, conversations and files.

use std::collections::{HashMap, VecDeque};

use bytes::Bytes;
use http::StatusCode;
use parking_lot::Mutex;
use serde_json::{Value, json};

use crate::failure::Failure;

/// Most objects. The oldest one goes first.
const OBJECTS_MAX: usize = 1024;

/// Most bytes of all files and documents. The oldest object goes first.
const BYTES_MAX: usize = 64 << 20;

/// The kind of an object, as its `object` says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    Response,
    Conversation,
    File,
}

/// One object.
#[derive(Clone, Debug)]
pub(crate) struct Object {
    pub(crate) kind: Kind,
    /// The object as a client sees it.
    pub(crate) document: Value,
    /// The items before a response's output, or in a conversation.
    pub(crate) items: Vec<Value>,
    /// The bytes of a file.
    pub(crate) contents: Bytes,
}

/// The objects of one engine.
#[derive(Debug, Default)]
pub(crate) struct Stored(Mutex<Table>);

#[derive(Debug, Default)]
struct Table {
    objects: HashMap<String, Object>,
    /// Oldest first.
    order: VecDeque<String>,
    bytes: usize,
}

impl Object {
    /// An object without contents.
    pub(crate) fn new(kind: Kind, document: Value, items: Vec<Value>) -> Self {
        Self {
            kind,
            document,
            items,
            contents: Bytes::new(),
        }
    }

    fn cost(&self) -> usize {
        let texts = self.items.iter().map(|item| item.to_string().len());
        self.document.to_string().len() + texts.sum::<usize>() + self.contents.len()
    }
}

impl Stored {
    /// Stores or replaces an object.
    pub(crate) fn put(&self, id: &str, object: Object) {
        let mut table = self.0.lock();
        table.remove(id);
        table.bytes += object.cost();
        table.objects.insert(id.to_owned(), object);
        table.order.push_back(id.to_owned());
        while table.order.len() > OBJECTS_MAX || table.bytes > BYTES_MAX {
            let Some(oldest) = table.order.front().cloned() else {
                return;
            };
            table.remove(&oldest);
        }
    }

    /// An object.
    ///
    /// # Errors
    /// 404.
    pub(crate) fn get(&self, kind: Kind, id: &str) -> Result<Object, Failure> {
        let table = self.0.lock();
        let object = table.objects.get(id).filter(|object| object.kind == kind);
        object.cloned().ok_or_else(|| missing(kind, id))
    }

    /// Adds items to a conversation. One that was deleted meanwhile stays deleted.
    pub(crate) fn extend(&self, id: &str, items: Vec<Value>) {
        if let Ok(mut conversation) = self.get(Kind::Conversation, id) {
            conversation.items.extend(items);
            self.put(id, conversation);
        }
    }

    /// Deletes an object and returns what its client is told.
    ///
    /// # Errors
    /// 404.
    pub(crate) fn delete(&self, kind: Kind, id: &str) -> Result<Value, Failure> {
        self.get(kind, id)?;
        self.0.lock().remove(id);
        let object = match kind {
            Kind::Response => "response",
            Kind::Conversation => "conversation.deleted",
            Kind::File => "file",
        };
        Ok(json!({"id": id, "object": object, "deleted": true}))
    }

    /// The documents of a kind, newest first.
    pub(crate) fn list(&self, kind: Kind) -> Vec<Value> {
        let table = self.0.lock();
        let objects = table
            .order
            .iter()
            .rev()
            .filter_map(|id| table.objects.get(id));
        let found = objects.filter(|object| object.kind == kind);
        found.map(|object| object.document.clone()).collect()
    }
}

impl Table {
    fn remove(&mut self, id: &str) {
        if let Some(object) = self.objects.remove(id) {
            self.bytes -= object.cost();
            self.order.retain(|known| known != id);
        }
    }
}

fn missing(kind: Kind, id: &str) -> Failure {
    let kind = match kind {
        Kind::Response => "Response",
        Kind::Conversation => "Conversation",
        Kind::File => "File",
    };
    Failure::new(
        StatusCode::NOT_FOUND,
        format!("{kind} with id '{id}' not found."),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_oldest_object_makes_room() {
        let stored = Stored::default();
        let object = || Object::new(Kind::Response, json!({}), Vec::new());
        for number in 0..=OBJECTS_MAX {
            stored.put(&number.to_string(), object());
        }
        assert!(stored.get(Kind::Response, "0").is_err());
        assert!(stored.get(Kind::Response, "1").is_ok());
        let large = Object {
            contents: vec![0; BYTES_MAX].into(),
            ..object()
        };
        stored.put("large", large);
        assert_eq!(stored.list(Kind::Response).len(), 0);
    }
}
