-- What the installation is, and the policy with its history: small tables, changed by administrators only.
CREATE TABLE installation (
    only_row boolean PRIMARY KEY DEFAULT true CONSTRAINT installation_is_one_row CHECK (only_row),
    partitions smallint NOT NULL CONSTRAINT installation_partitions_are_1_to_256 CHECK (partitions BETWEEN 1 AND 256),
    secret_fingerprint bytea NOT NULL,
    installed_at timestamptz NOT NULL DEFAULT now()
);

CREATE TABLE policy_version (
    only_row boolean PRIMARY KEY DEFAULT true CONSTRAINT policy_version_is_one_row CHECK (only_row),
    version bigint NOT NULL
);
INSERT INTO policy_version (version) VALUES (0);

CREATE TABLE policy_objects (
    kind text NOT NULL CONSTRAINT policy_object_kind_is_known CHECK (kind IN ('meter', 'operation', 'limit', 'plan')),
    id text NOT NULL,
    version bigint NOT NULL,
    definition jsonb NOT NULL,
    archived boolean NOT NULL DEFAULT false,
    created_at timestamptz NOT NULL DEFAULT now(),
    updated_at timestamptz NOT NULL DEFAULT now(),
    PRIMARY KEY (kind, id)
);

-- Every version of every object, tenants too; a deletion is a version without a definition.
CREATE TABLE policy_history (
    kind text NOT NULL,
    id text NOT NULL,
    version bigint NOT NULL,
    policy_version bigint NOT NULL,
    definition jsonb,
    changed_at timestamptz NOT NULL DEFAULT now(),
    PRIMARY KEY (kind, id, version)
);

CREATE TABLE tenants (
    id text PRIMARY KEY,
    partition smallint NOT NULL,
    version bigint NOT NULL,
    definition jsonb NOT NULL,
    counter_resets jsonb NOT NULL DEFAULT '[]',
    archived boolean NOT NULL DEFAULT false,
    created_at timestamptz NOT NULL DEFAULT now(),
    updated_at timestamptz NOT NULL DEFAULT now()
);

CREATE TABLE counter_generations (
    limit_id text NOT NULL,
    shape text NOT NULL,
    generation bigint NOT NULL CONSTRAINT counter_generation_is_positive CHECK (generation > 0),
    since_ms bigint NOT NULL,
    PRIMARY KEY (limit_id, shape)
);

CREATE TABLE api_keys (
    id text PRIMARY KEY,
    name text NOT NULL,
    role text NOT NULL,
    tenant text,
    hash bytea NOT NULL,
    created_at timestamptz NOT NULL,
    expires_at timestamptz,
    revoked_at timestamptz
);
CREATE INDEX api_keys_newest_first ON api_keys (created_at DESC, id DESC);

CREATE TABLE audit_log (
    number bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    at timestamptz NOT NULL DEFAULT now(),
    actor text NOT NULL,
    action text NOT NULL,
    object text NOT NULL,
    detail jsonb NOT NULL DEFAULT '{}'
);
