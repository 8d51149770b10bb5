//! Push notification configuration.

use super::convert;
use crate::pb::generated as pb;

convert! {
    TaskPushNotificationConfig => pb::TaskPushNotificationConfig {
        tenant, id, task_id, url, token, authentication,
    }
    AuthenticationInfo => pb::AuthenticationInfo { scheme, credentials }
}
