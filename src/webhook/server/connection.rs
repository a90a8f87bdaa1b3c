//! What every connection is held to, before there is a request: how many there are, how long they may stay silent, how large
//! a head may be. For both servers.

use std::future::{Ready, ready};
use std::io;
use std::net::{SocketAddr, TcpListener};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use axum_server::Server;
use axum_server::accept::Accept;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use crate::observe::metrics::Metrics;

/// How long a new connection may take until its first request has a head.
const FIRST_REQUEST: Duration = Duration::from_secs(10);

/// How long HTTP/1 may take for a head. The time between two requests counts too, so it is also how long a connection idles,
/// and must be longer than an API server lets one idle (90 s, Go's `DefaultTransport`): of the two, the one that sends
/// requests has to close it. Otherwise a request that is sent at that moment fails with `EOF`, and the deploy with it.
const HEADER_READ: Duration = Duration::from_secs(120);

/// The largest head. Those of an API server have a few hundred bytes.
const HEAD_BYTES: u32 = 16 << 10;

/// The most headers of an HTTP/1 head.
const HEADERS: usize = 64;

/// The most HTTP/2 requests of a connection at a time. A Go client opens another connection for more.
const STREAMS: u32 = 64;

/// Bytes of a body that are buffered before the handler reads it, for each HTTP/2 request.
const STREAM_WINDOW: u32 = 64 << 10;

/// The same for a connection: room for all its requests. With less, requests that wait for their turn, whose bodies nobody
/// reads yet, would use up the room of those whose turn it is.
const CONNECTION_WINDOW: u32 = STREAMS * STREAM_WINDOW;

/// How often a silent HTTP/2 client is asked whether it is there, and how long it has to answer.
const PING: (Duration, Duration) = (Duration::from_secs(30), Duration::from_secs(10));

/// A server on `listener` that holds its connections to all of the above, and at most `max_connections` of them.
///
/// # Errors
///
/// When the listener cannot be taken over by the runtime.
pub(super) fn listen(
    listener: TcpListener,
    max_connections: usize,
    metrics: Metrics,
) -> io::Result<Server<SocketAddr, Capped>> {
    let permits = Arc::new(Semaphore::new(max_connections.min(Semaphore::MAX_PERMITS)));
    let mut server = axum_server::from_tcp(listener)?
        .acceptor(Capped { permits })
        .first_request_timeout(FIRST_REQUEST)
        .accept_error_handler(move |peer, error| {
            metrics.connection_failed();
            tracing::debug!(?peer, %error, "a connection failed");
        });
    let builder = server.http_builder();
    builder.http1().header_read_timeout(HEADER_READ).max_headers(HEADERS).max_buf_size(HEAD_BYTES as usize);
    builder
        .http2()
        .max_header_list_size(HEAD_BYTES)
        .max_concurrent_streams(STREAMS)
        .initial_stream_window_size(STREAM_WINDOW)
        .initial_connection_window_size(CONNECTION_WINDOW)
        .keep_alive_interval(PING.0)
        .keep_alive_timeout(PING.1);
    Ok(server)
}

/// Lets a connection in while there is a permit for it.
#[derive(Debug, Clone)]
pub(super) struct Capped {
    permits: Arc<Semaphore>,
}

impl<S> Accept<TcpStream, S> for Capped {
    type Stream = Permitted;
    type Service = S;
    type Future = Ready<io::Result<(Permitted, S)>>;

    fn accept(&self, stream: TcpStream, service: S) -> Self::Future {
        // Not to wait: connections that wait cost a descriptor each, and their clients cannot tell.
        let permitted = match self.permits.clone().try_acquire_owned() {
            // Answers are one small write; waiting to fill a packet only delays them.
            Ok(permit) => stream.set_nodelay(true).map(|()| (Permitted { stream, _permit: permit }, service)),
            Err(_) => Err(io::Error::other("too many connections")),
        };
        ready(permitted)
    }
}

/// A connection with its permit, which ends with it.
#[derive(Debug)]
pub(super) struct Permitted {
    stream: TcpStream,
    _permit: OwnedSemaphorePermit,
}

impl AsyncRead for Permitted {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_read(cx, buf)
    }
}

impl AsyncWrite for Permitted {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write(cx, buf)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write_vectored(cx, bufs)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }
}
