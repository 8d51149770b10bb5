//! Raw exchanges with an agent: requests, bounded answers, streams. Nothing here knows what an answer means.

mod exchange;
mod frames;
mod grpc;
mod request;
mod session;
mod stream;

pub use self::frames::{Frame, FrameData, FrameReader};
pub(crate) use self::{
    exchange::{Exchange, Failure, Response, shortened},
    grpc::{GrpcAnswer, frame, status_details},
    request::{Identity, Request, without_query},
    session::{Session, is_stream},
    stream::{End, Opened, Stream},
};
