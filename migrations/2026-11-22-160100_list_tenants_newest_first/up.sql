-- A change of policy goes through all tenants page by page: each page without sorting all of them.
CREATE INDEX tenants_newest_first ON tenants (created_at DESC, id DESC);
