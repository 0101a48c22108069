//! Where handlers are registered: with a listener, which serves them, or with the contract, which documents them too.
//! Only the contract pays for the documentation.

use actix_web::dev::HttpServiceFactory;
use actix_web::web::ServiceConfig;
use utoipa_actix_web::OpenApiFactory;
use utoipa_actix_web::service_config::ServiceConfig as DocumentedConfig;

/// Takes handlers.
pub(super) trait Handlers {
    /// Adds a handler that the contract documents.
    fn service<F: HttpServiceFactory + OpenApiFactory + 'static>(&mut self, handler: F) -> &mut Self;

    /// Adds a handler that no client calls.
    fn undocumented<F: HttpServiceFactory + 'static>(&mut self, handler: F) -> &mut Self;

    /// Adds the handlers of a group.
    fn configure(&mut self, group: fn(&mut Self)) -> &mut Self {
        group(self);
        self
    }
}

impl Handlers for ServiceConfig {
    fn service<F: HttpServiceFactory + OpenApiFactory + 'static>(&mut self, handler: F) -> &mut Self {
        ServiceConfig::service(self, handler)
    }

    fn undocumented<F: HttpServiceFactory + 'static>(&mut self, handler: F) -> &mut Self {
        ServiceConfig::service(self, handler)
    }
}

impl Handlers for DocumentedConfig<'_> {
    fn service<F: HttpServiceFactory + OpenApiFactory + 'static>(&mut self, handler: F) -> &mut Self {
        DocumentedConfig::service(self, handler)
    }

    fn undocumented<F: HttpServiceFactory + 'static>(&mut self, handler: F) -> &mut Self {
        self.map(|config| config.service(handler))
    }
}
