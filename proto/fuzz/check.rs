//! What must hold for any bytes, for the fuzzer and for the tests of `proto`, which include this
//! file under their own name of the crate.

use bytes::BytesMut;
use tokio_util::codec::Decoder;

/// Decoding neither panics nor keeps more memory than was received, four times over and a step; what
/// was decoded encodes to something that decodes to the same.
pub(super) fn decode(bytes: &[u8]) {
    use proto::codec::{Codec, Decoded, STEP, encode};
    use proto::frame::{Compression, Frame};

    let mut codec = Codec::default();
    let mut buffer = BytesMut::from(bytes);
    loop {
        match codec.decode_eof(&mut buffer) {
            Ok(Some(Decoded::Frame(frame))) => {
                let mut wire = BytesMut::new();
                if matches!(frame, Frame::Unknown(_))
                    || encode(&frame, Compression::None, &mut wire).is_err()
                {
                    continue;
                }
                match Codec::default().decode_eof(&mut wire) {
                    Ok(Some(Decoded::Frame(again))) => assert_eq!(again, frame),
                    other => panic!("{other:?}"),
                }
            }
            Ok(Some(Decoded::Bad(_))) => {}
            Ok(None) | Err(_) => break,
        }
        assert!(buffer.capacity() <= 4 * bytes.len() + STEP);
    }
}
