//! A route as a type: its value is a request, and the type has its method, path and answer.

use http::{Method, StatusCode};
use schemars::JsonSchema;
use serde::{Serialize, de::DeserializeOwned};
use serde_json::Value;
use url::form_urlencoded;

use super::{path, trail::What};

/// A route below `/api/v1`. `()` as a query, body or answer means that there is none.
///
/// Implemented by the macro `routes` alone, from one declaration per route.
pub trait Route: Sized + Send + 'static {
    /// The HTTP method.
    const METHOD: Method;
    /// The path as the OpenAPI document has it, such as `/keys/{id}:rotate`.
    const PATH: &'static str;
    /// The operation id in the OpenAPI document, such as `keys.rotate`.
    const ID: &'static str;
    /// A one-sentence description of the route.
    const SUMMARY: &'static str;
    /// The HTTP status of success.
    const STATUS: StatusCode;
    /// True if the request may carry the version of the resource that it changes (If-Match).
    const VERSIONED: bool;
    /// For a route that answers a stream of server-sent events: reads the id of an event, after which a client goes
    /// on (`Last-Event-ID`). `None`: there is one answer.
    const STREAM: Option<fn(&Self::Answer) -> &str>;
    /// Removes from an answer what a viewer may not see.
    const REDACT: Option<fn(&mut Self::Answer)>;
    /// The kind of the row that a successful request leaves in the audit trail.
    const TRAIL: Option<What>;

    type Query: Serialize + DeserializeOwned + JsonSchema + Send + 'static;
    type Body: Serialize + DeserializeOwned + JsonSchema + Send + 'static;
    type Answer: Serialize + DeserializeOwned + JsonSchema + Send + 'static;

    /// The values of the names in braces, in the order of the path.
    fn names(&self) -> Vec<&str>;

    fn query(&self) -> &Self::Query;

    fn body(&self) -> &Self::Body;

    /// The version to which the change is bound; `None` is any version.
    fn if_match(&self) -> Option<u64>;

    /// Makes a request from the parts that a server has read.
    fn from_parts(parts: RequestParts<Self::Query, Self::Body>) -> Self;

    /// The path of this request, with its names filled in.
    fn path(&self) -> String {
        path::fill(Self::PATH, &self.names())
    }

    /// The query string of this request; may be empty.
    ///
    /// # Errors
    /// If the query cannot be serialized, which no query of this API does.
    fn query_string(&self) -> serde_json::Result<String> {
        let mut pairs = form_urlencoded::Serializer::new(String::new());
        if let Value::Object(members) = serde_json::to_value(self.query())? {
            for (name, value) in &members {
                match value {
                    Value::Null => {}
                    Value::String(text) => _ = pairs.append_pair(name, text),
                    other => _ = pairs.append_pair(name, &other.to_string()),
                }
            }
        }
        Ok(pairs.finish())
    }
}

/// The parts of a request, as a server reads them.
#[derive(Debug)]
pub struct RequestParts<Q, B> {
    /// The values of the names in the path, in its order.
    pub names: Vec<String>,
    pub query: Q,
    pub body: B,
    pub if_match: Option<u64>,
}

/// Declares routes: each becomes a struct with a field per part of its request, and its [`Route`]. The doc comment
/// is the summary in the OpenAPI document.
macro_rules! routes {
    ($(
        $(#[doc = $summary:literal])+
        $route:ident: $method:ident $path:literal, $id:literal {
            $(path $name:ident,)*
            $(query $query:ident: $Query:ty,)?
            $(body $body:ident: $Body:ty,)?
            $(if_match $version:ident,)?
        } -> $Answer:ty $(, status $status:ident)? $(, trail $what:ident)? $(, stream $cursor:ident)?
            $(, redact $redact:path)?;
    )+) => {$(
        $(#[doc = $summary])+
        #[derive(Clone, Debug)]
        pub struct $route {
            $(pub $name: String,)*
            $(pub $query: $Query,)?
            $(pub $body: $Body,)?
            $(pub $version: Option<u64>,)?
        }

        impl $crate::admin::api::Route for $route {
            const METHOD: http::Method = http::Method::$method;
            const PATH: &'static str = $path;
            const ID: &'static str = $id;
            const SUMMARY: &'static str = concat!($($summary),+).trim_ascii();
            const STATUS: http::StatusCode =
                $crate::admin::api::route::or!(http::StatusCode::OK $(, http::StatusCode::$status)?);
            const STREAM: Option<fn(&$Answer) -> &str> =
                $crate::admin::api::route::or!(None $(, Some(|item: &$Answer| item.$cursor.as_str()))?);
            const REDACT: Option<fn(&mut $Answer)> = $crate::admin::api::route::or!(None $(, Some($redact))?);
            const VERSIONED: bool = $crate::admin::api::route::or!(false $(, { let _ = stringify!($version); true })?);
            const TRAIL: Option<$crate::admin::api::What> =
                $crate::admin::api::route::or!(None $(, Some($crate::admin::api::What::$what))?);

            type Query = $crate::admin::api::route::or!(@type () $(, $Query)?);
            type Body = $crate::admin::api::route::or!(@type () $(, $Body)?);
            type Answer = $Answer;

            fn names(&self) -> Vec<&str> {
                vec![$(&self.$name),*]
            }

            fn query(&self) -> &Self::Query {
                $crate::admin::api::route::or!(&() $(, &self.$query)?)
            }

            fn body(&self) -> &Self::Body {
                $crate::admin::api::route::or!(&() $(, &self.$body)?)
            }

            fn if_match(&self) -> Option<u64> {
                $crate::admin::api::route::or!(None $(, self.$version)?)
            }

            fn from_parts(parts: $crate::admin::api::RequestParts<Self::Query, Self::Body>) -> Self {
                let mut names = parts.names.into_iter();
                let _ = &mut names;
                Self {
                    $($name: names.next().unwrap_or_default(),)*
                    $($query: parts.query,)?
                    $($body: parts.body,)?
                    $($version: parts.if_match,)?
                }
            }
        }
    )+};
}

/// Expands to the second argument, or to the first if there is no second.
macro_rules! or {
    (@type $default:ty) => {
        $default
    };
    (@type $default:ty, $value:ty) => {
        $value
    };
    ($default:expr) => {
        $default
    };
    ($default:expr, $value:expr) => {
        $value
    };
}

pub(super) use or;
pub(super) use routes;
