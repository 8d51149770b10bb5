//! From a whole call to the two functions that a wire has: calls with one answer, and calls with a
//! stream.

/// Makes an `A2aService` of a type with `unary(&self, &CallContext, Call) -> Result<Reply>` and
/// `streaming(&self, &CallContext, Call) -> Result<EventStream>`.
macro_rules! a2a_service {
    ($service:ty) => {
        impl nuncio_protocol::op::Carrier for $service {
            async fn carry(
                &self,
                cx: &nuncio_protocol::CallContext,
                call: nuncio_protocol::op::Call,
            ) -> nuncio_protocol::Result<nuncio_protocol::op::Reply> {
                if call.op().row().streaming {
                    self.streaming(cx, call).await.map(nuncio_protocol::op::Reply::Stream)
                } else {
                    self.unary(cx, call).await
                }
            }
        }
    };
}

pub(crate) use a2a_service;
