//! The members of a meta object: the one place for the name, type, writer and meaning of each.
//!
//! [`MetaOf`](super::MetaOf), the listener's reader of the plain form and the table of
//! `docs/bodylog.md` are made from it.

/// Calls a macro with every member, in the order in which they are written. An entry is its comment,
/// who sets it (`sender` is the router, `receiver` the listener), its kind, name and type. `S` is a
/// text, `J` any JSON value, `H` the headers.
#[macro_export]
macro_rules! meta_members {
    ($callback:ident) => {
        $callback! {
            /// Major version of the schema; absent in version 1.
            sender number v: Option<u32>;
            /// Arrival of the request: RFC 3339, milliseconds. UTC in version 2, any offset in version 1.
            sender text ts: Option<S>;
            /// The arrival in milliseconds since the Unix epoch.
            sender number ts_unix_ms: Option<i64>;
            /// The `x-request-id`.
            sender text request_id: Option<S>;
            /// The sender: `producer` of its HELLO.
            receiver text pid: Option<S>;
            /// The run of the sender.
            receiver number epoch: Option<u64>;
            /// Sequence within the run.
            receiver number seq: Option<u64>;
            /// The client's address.
            sender text client_ip: Option<S>;
            /// Method.
            sender text method: Option<S>;
            /// Path and query after the route prefix, with secrets in the query removed.
            sender text uri: Option<S>;
            /// Request headers by lower-case name, with secrets removed. A header that was sent several
            /// times is a list.
            sender headers req_headers: Option<H>;
            /// Whether headers or other parts were left out because the object was too large.
            sender flag meta_trimmed: bool;
            /// Whether the stored request body is incomplete.
            sender boolean req_body_truncated: Option<bool>;
            /// Whether the stored response body is incomplete.
            sender boolean resp_body_truncated: Option<bool>;
            /// Size of the request body as received, in bytes, however much of it is stored.
            sender number req_bytes: Option<u64>;
            /// Size of the response body from the peer, in bytes, however much of it is stored.
            sender number resp_bytes: Option<u64>;
            /// Number of non-empty chunks of the response body.
            sender number chunk_count: Option<u64>;
            /// `content-encoding` of the stored response body; absent when it is plain.
            sender text resp_encoding: Option<S>;
            /// The route.
            sender text route: Option<S>;
            /// The owner of the client's key.
            sender text tenant: Option<S>;
            /// The model that the request names.
            sender text model_req: Option<S>;
            /// The model that the response names.
            sender text model: Option<S>;
            /// Whether the request asks for a stream; absent when unknown.
            sender boolean stream: Option<bool>;
            /// The peer that answered, `host:port`; version 1 appends ` (retry#N)`.
            sender text peer: Option<S>;
            /// The peer without the retry suffix.
            sender text peer_clean: Option<S>;
            /// The peer's configured name.
            sender text peer_name: Option<S>;
            /// If the peer is a router itself, the peer behind it: its `X-Routed-Peer`.
            sender text forwarded_to: Option<S>;
            /// Number of attempts, including the last one; 0 for a request that reached no peer.
            sender number attempts: Option<u32>;
            /// The session id.
            sender text session_id: Option<S>;
            /// Where the session id was found.
            sender text session_src: Option<S>;
            /// How the peer was chosen: `X-Routed-Mode`.
            sender text mode: Option<S>;
            /// The facts of the decision.
            sender json decision: Option<J>;
            /// Why the router itself refused the request.
            sender text reject_reason: Option<S>;
            /// Status sent to the client; 499 when the client left first.
            sender number status: Option<u16>;
            /// Token counts.
            sender usage usage: Option<Usage>;
            /// Why generation ended, in OpenAI's words for every dialect: `stop`, `length`, `tool_calls`, …
            sender text finish_reason: Option<S>;
            /// The engine's own word, if it differs.
            sender text stop_reason_raw: Option<S>;
            /// Whether the end of the response was seen: the stream's last event, or its full length.
            sender boolean complete: Option<bool>;
            /// Whether the client left before the response had ended.
            sender flag client_gone: bool;
            /// Time of the first non-empty chunk of the response body.
            sender time first_chunk_t: Option<f64>;
            /// Time of the first event of a stream with generated content; absent when the router could not
            /// read the stream.
            sender time first_token_t: Option<f64>;
            /// Time of the end of the response body; absent when it was not seen.
            sender time last_chunk_t: Option<f64>;
            /// Time of the end of the exchange.
            sender time rt: Option<f64>;
            /// Time to connect to the peer that answered; 0 on an existing connection.
            sender time upstream_connect_t: Option<f64>;
            /// Time spent waiting for a slot.
            sender time queue_t: Option<f64>;
            /// Why the exchange is recorded: `all`, `rate`, `error`, `slow`, `truncated`.
            sender text sampled_by: Option<S>;
            /// The parts left out for lack of space: `bodies` by the sender, `disk` by the receiver.
            sender text shed: Option<S>;
            /// Lower sequences that have not come are lost: the sender had to drop them.
            sender number lost_before: Option<u64>;
            /// Data found in the response.
            sender found resp_meta: Option<RespMetaOf<S, J>>;
        }
    };
}
