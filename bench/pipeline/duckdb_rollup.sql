-- The default tables of `sluice meter rollup` in plain SQL of DuckDB, written from docs/reference/metering-files.md and not from the
-- pipeline's queries. `bench/pipeline/reference.py` makes the views raw_samples, raw_events, raw_usage, raw_dim_group and raw_dim_client
-- (the columns of metering_format/tables.py, and date and hour of the file), executes the statements, and compares every table with those
-- of an engine. They are for file sets without rows for the quarantine, without a tenants file, and without prices.

CREATE TABLE group_names AS
SELECT *, dense_rank() OVER (
    ORDER BY proxy_id, quota_type, scope, node NULLS FIRST, listener NULLS FIRST, tag_user NULLS FIRST, tag_client_id NULLS FIRST,
             tag_ip NULLS FIRST, tags NULLS FIRST) AS id
FROM (
    SELECT run_id, proxy_id, group_ref, any_value(quota_type) AS quota_type, any_value(scope) AS scope,
           any_value(coalesce(node, node_id::VARCHAR)) AS node, any_value(listener) AS listener, any_value(tag_user) AS tag_user,
           any_value(tag_client_id) AS tag_client_id, any_value(tag_ip) AS tag_ip, any_value(tags) AS tags
    FROM raw_dim_group GROUP BY run_id, proxy_id, group_ref);

CREATE TABLE named AS
SELECT DISTINCT id, '(unassigned)' AS tenant, proxy_id, quota_type, scope, node, listener, tag_user, tag_client_id, tag_ip, tags
FROM group_names;

CREATE TABLE client_names AS
SELECT run_id, client_ref, any_value(principal_type) || ':' || any_value(principal) AS principal, any_value(client_id) AS client_id
FROM raw_dim_client GROUP BY run_id, client_ref;

-- Samples without what other processes recorded, and controller mutations as samples of one decision.
CREATE VIEW counted AS
SELECT run_id, proxy_id, group_ref, date, hour, sample_start_ms, last_event_ms, n - coalesce(remote_n, 0) AS n,
       sum - coalesce(remote_sum, 0) AS units, bound, max_observed, throttled_n, violated_n, throttle_ms_sum, throttle_ms_max, applied_ms_sum,
       dt_ms, thr_pos, thr_ms, applied_ms
FROM raw_samples
UNION ALL
SELECT run_id, proxy_id, group_ref, date, hour, ts_ms, ts_ms, 1, if(kind IN (5, 8), 0, value), bound, NULL, (throttle_ms > 0)::INT,
       (throttle_ms > 0)::INT, greatest(throttle_ms, 0), throttle_ms, greatest(applied_ms, 0), [0],
       if(throttle_ms > 0, [0], []), if(throttle_ms > 0, [throttle_ms], []), if(throttle_ms > 0, [applied_ms], [])
FROM raw_events WHERE kind BETWEEN 4 AND 8;

CREATE TABLE samples AS
SELECT id, quota_type, date, hour, epoch_ms((date || ' ' || hour || ':00:00')::TIMESTAMP) AS hour_ms,
       least(greatest(sample_start_ms, hour_ms), hour_ms + 3599999) AS begin_ms,
       greatest(begin_ms, least(greatest(last_event_ms, hour_ms), hour_ms + 3599999)) + 1 AS end_ms,
       sample_start_ms, n, units, max_observed, throttled_n, violated_n, throttle_ms_sum, throttle_ms_max, applied_ms_sum,
       if(bound < 9.223372036854775807e18 AND NOT (quota_type = 'Connection' AND bound >= 2147483647), bound, NULL) AS bound,
       dt_ms, thr_pos, thr_ms, applied_ms
FROM counted JOIN group_names USING (run_id, proxy_id, group_ref);

CREATE TABLE waits AS
SELECT id, date, hour, sample_start_ms + dt_ms[pos + 1] AS at_ms, wait_ms::BIGINT AS wait_ms, applied > 0 AS applied,
       least(greatest(at_ms, hour_ms), hour_ms + 3599999) AS counts_ms
FROM (
    SELECT id, date, hour, hour_ms, sample_start_ms, dt_ms, unnest(thr_pos) AS pos, unnest(thr_ms) AS wait_ms, unnest(applied_ms) AS applied
    FROM samples WHERE throttled_n > 0)
WHERE wait_ms > 0;

-- The seconds of each sample. Its units are distributed over them by time; all else counts in the first one.
CREATE TABLE seconds AS
WITH parts AS (
    SELECT *, unnest(generate_series(begin_ms - begin_ms % 1000, end_ms - 1, 1000)) AS second_ms,
           if(applied_ms IS NULL AND applied_ms_sum > 0, throttled_n,
              len(list_filter(range(len(thr_ms)), lambda i: thr_ms[i + 1] > 0 AND applied_ms[i + 1] > 0))) AS waited,
           if(applied_ms IS NULL AND applied_ms_sum > 0, throttle_ms_sum,
              list_sum(list_transform(range(len(thr_ms)), lambda i: if(applied_ms[i + 1] > 0, greatest(thr_ms[i + 1], 0), 0)))) AS waited_ms
    FROM samples),
divided AS (
    SELECT *, second_ms <= begin_ms AS is_first,
           floor(units * ((least(second_ms + 1000, end_ms) - begin_ms)::DOUBLE / (end_ms - begin_ms)))::BIGINT
           - if(is_first, 0, floor(units * ((second_ms - begin_ms)::DOUBLE / (end_ms - begin_ms)))::BIGINT) AS its_units
    FROM parts)
SELECT id, date, hour, second_ms, quota_type, sum(its_units)::BIGINT AS units, min(bound) AS bound, max(max_observed) AS observed_max,
       max(if(bound > 0, max_observed / bound, NULL)) AS utilisation,
       coalesce(max(throttle_ms_max) FILTER (is_first), 0) AS throttle_ms_max,
       coalesce(sum(n) FILTER (is_first), 0)::BIGINT AS decisions,
       coalesce(sum(throttled_n) FILTER (is_first), 0)::BIGINT AS throttled,
       coalesce(sum(violated_n) FILTER (is_first), 0)::BIGINT AS violated,
       coalesce(sum(throttle_ms_sum) FILTER (is_first), 0)::BIGINT AS throttle_ms,
       coalesce(sum(applied_ms_sum) FILTER (is_first), 0)::BIGINT AS applied_ms,
       coalesce(sum(waited) FILTER (is_first), 0)::BIGINT AS waited,
       coalesce(sum(waited_ms) FILTER (is_first), 0)::BIGINT AS waited_ms,
       sum(its_units)::BIGINT * if(quota_type = 'Request', 1e-7, 1.0) AS rate
FROM divided GROUP BY id, date, hour, second_ms, quota_type;

CREATE MACRO of_seconds(days) AS TABLE
SELECT id, date, if(days, NULL, hour) AS hour, sum(decisions)::BIGINT AS decisions, sum(units)::BIGINT AS units,
       sum(throttled)::BIGINT AS throttled, sum(violated)::BIGINT AS violated, sum(throttle_ms)::BIGINT AS throttle_ms,
       sum(waited)::BIGINT AS waited, sum(waited_ms)::BIGINT AS waited_ms, max(throttle_ms_max)::BIGINT AS throttle_ms_max,
       sum(applied_ms)::BIGINT AS applied_ms, count(*) AS seconds_active, avg(rate) AS rate_mean, quantile_cont(rate, 0.5) AS rate_p50,
       quantile_cont(rate, 0.95) AS rate_p95, quantile_cont(rate, 0.99) AS rate_p99, max(rate) AS rate_max,
       max(observed_max) AS observed_max, avg(bound) AS bound_mean,
       100 * sum(rate) FILTER (bound IS NOT NULL) / nullif(sum(bound), 0) AS utilisation_mean_percent,
       100 * max(utilisation) AS utilisation_max_percent
FROM seconds GROUP BY ALL;

CREATE MACRO of_waits(days) AS TABLE
SELECT id, date, if(days, NULL, hour) AS hour, quantile_cont(wait_ms, 0.5) AS throttle_ms_p50,
       quantile_cont(wait_ms, 0.95) AS throttle_ms_p95, quantile_cont(wait_ms, 0.99) AS throttle_ms_p99
FROM waits GROUP BY ALL;

CREATE TABLE decisions_hour AS
SELECT (date || ' ' || hour || ':00:00')::TIMESTAMP AS start, *
FROM of_seconds(false) LEFT JOIN of_waits(false) USING (id, date, hour) JOIN named USING (id);

CREATE TABLE decisions_day AS
SELECT date::TIMESTAMP AS start, *
FROM of_seconds(true) LEFT JOIN (SELECT * EXCLUDE (hour) FROM of_waits(true)) USING (id, date) JOIN named USING (id);

CREATE TABLE throttle_histogram AS
SELECT *
FROM (SELECT id, date, hour, applied, pow(2, ceil(log2(wait_ms)))::BIGINT AS bucket_ms, count(*) AS n FROM waits GROUP BY ALL)
JOIN named USING (id);

-- A throttle window ends where no wait of the group goes on. `waiting` counts waits that have begun and not ended; one that ends in a
-- millisecond has ended before another one begins in it.
CREATE TABLE throttle_stretches AS
WITH ordered AS (
    SELECT *, coalesce(at_ms > max(at_ms + wait_ms) OVER (
        PARTITION BY id, date, hour, applied ORDER BY at_ms ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING), true) AS is_new
    FROM waits),
numbered AS (
    SELECT *, sum(is_new::INT) OVER (
        PARTITION BY id, date, hour, applied ORDER BY at_ms, is_new DESC ROWS UNBOUNDED PRECEDING) AS window_number
    FROM ordered),
edges AS (
    SELECT id, date, hour, applied, window_number, at_ms AS edge_ms, 1 AS step FROM numbered
    UNION ALL SELECT id, date, hour, applied, window_number, at_ms + wait_ms, -1 FROM numbered),
heights AS (
    SELECT id, date, hour, applied, window_number, max(waiting)::BIGINT AS waiting_max
    FROM (
        SELECT *, sum(step) OVER (PARTITION BY id, date, hour, applied ORDER BY edge_ms, step ROWS UNBOUNDED PRECEDING) AS waiting FROM edges)
    GROUP BY ALL)
SELECT *
FROM (
    SELECT id, date, hour, applied, window_number, min(at_ms) AS begin_ms, max(at_ms + wait_ms) AS end_ms, count(*) AS throttled,
           sum(wait_ms)::BIGINT AS throttle_ms
    FROM numbered GROUP BY ALL)
JOIN heights USING (id, date, hour, applied, window_number) JOIN named USING (id);

CREATE TABLE rate_series AS
WITH ranked AS (
    SELECT id, date, hour, row_number() OVER (
        PARTITION BY date, hour ORDER BY sum(throttle_ms) DESC, max(utilisation) DESC NULLS LAST, id) AS place
    FROM seconds GROUP BY id, date, hour)
SELECT * EXCLUDE (quota_type), named.quota_type
FROM seconds SEMI JOIN (SELECT * FROM ranked WHERE place <= 24) AS chosen USING (id, date, hour) JOIN named USING (id);

CREATE TABLE client_seconds AS
SELECT date, hour, '(unassigned)' AS tenant, principal, client_id, api_class,
       least(greatest(second_ms, hour_ms), hour_ms + 3599000) AS second_ms, sum(requests)::BIGINT AS requests,
       sum(request_bytes)::BIGINT AS request_bytes, sum(response_bytes)::BIGINT AS response_bytes,
       sum(produce_bytes)::BIGINT AS produce_bytes, sum(fetch_bytes)::BIGINT AS fetch_bytes, sum(handler_ns)::BIGINT AS handler_ns,
       sum(throttled_requests)::BIGINT AS throttled_requests, sum(throttle_ms)::BIGINT AS throttle_ms,
       sum(coalesce(waited_requests, throttled_requests))::BIGINT AS waited_requests,
       sum(coalesce(waited_ms, throttle_ms))::BIGINT AS waited_ms, sum(connections_opened)::BIGINT AS connections_opened,
       sum(connections_open)::BIGINT AS connections_open, sum(produce_bytes + fetch_bytes)::BIGINT AS bytes
FROM (SELECT *, epoch_ms((date || ' ' || hour || ':00:00')::TIMESTAMP) AS hour_ms FROM raw_usage)
JOIN client_names USING (run_id, client_ref) GROUP BY ALL;

CREATE MACRO of_clients(days) AS TABLE
SELECT date, if(days, NULL, hour) AS hour, tenant, principal, client_id, api_class, sum(requests)::BIGINT AS requests,
       sum(request_bytes)::BIGINT AS request_bytes, sum(response_bytes)::BIGINT AS response_bytes,
       sum(produce_bytes)::BIGINT AS produce_bytes, sum(fetch_bytes)::BIGINT AS fetch_bytes, sum(handler_ns)::BIGINT AS handler_ns,
       sum(throttled_requests)::BIGINT AS throttled_requests, sum(throttle_ms)::BIGINT AS throttle_ms,
       sum(waited_requests)::BIGINT AS waited_requests, sum(waited_ms)::BIGINT AS waited_ms,
       sum(connections_opened)::BIGINT AS connections_opened, max(connections_open) AS connections_open_max, count(*) AS seconds_active,
       quantile_cont(bytes, 0.5) AS bytes_per_second_p50, quantile_cont(bytes, 0.95) AS bytes_per_second_p95,
       quantile_cont(bytes, 0.99) AS bytes_per_second_p99, max(bytes) AS bytes_per_second_max
FROM client_seconds GROUP BY ALL;

CREATE TABLE usage_hour AS SELECT (date || ' ' || hour || ':00:00')::TIMESTAMP AS start, * FROM of_clients(false);
CREATE TABLE usage_day AS SELECT date::TIMESTAMP AS start, * EXCLUDE (hour) FROM of_clients(true);

-- `reconnects`: at least five connections in the 15 s after a wait, and three times as many per second as at other times.
-- `rotates`: a client-id begins within a minute after the last wait of another one of its principal, which ends by then; for each, the 16
-- that ended last before are compared.
CREATE TABLE escapes AS
WITH lived AS (
    SELECT date, hour, tenant, principal, client_id, second_ms, sum(waited_requests) AS waited, sum(connections_opened) AS opened
    FROM client_seconds GROUP BY ALL),
after_waits AS (
    SELECT *, coalesce(second_ms - max(if(waited > 0, second_ms, NULL)) OVER (
        PARTITION BY date, hour, tenant, principal, client_id ORDER BY second_ms ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING
        ) <= 15000, false) AS soon
    FROM lived),
reconnected AS (
    SELECT date, tenant, principal, client_id, 'reconnects' AS kind, NULL::VARCHAR AS to_client_id,
           coalesce(sum(opened) FILTER (soon), 0)::BIGINT AS n, min(second_ms) FILTER (soon AND opened > 0) AS at_ms
    FROM after_waits GROUP BY date, hour, tenant, principal, client_id
    HAVING n >= 5 AND n / count(*) FILTER (soon) >= 3 * (coalesce(sum(opened) FILTER (NOT soon), 0) / greatest(count(*) FILTER (NOT soon), 15))),
lives AS (
    SELECT date, tenant, principal, client_id, min(second_ms) AS first_ms, max(second_ms) AS last_ms,
           max(if(waited > 0, second_ms, NULL)) AS wait_ms
    FROM lived GROUP BY ALL),
pairs AS (
    SELECT old.*, new.client_id AS to_client_id, new.first_ms AS at_ms, greatest(old.wait_ms, old.last_ms - 10000) AS silent_ms
    FROM lives AS old JOIN lives AS new USING (date, principal)
    WHERE old.last_ms - 10000 <= old.wait_ms + 60000 AND silent_ms <= new.first_ms
    QUALIFY row_number() OVER (
        PARTITION BY date, principal, new.tenant, to_client_id
        ORDER BY silent_ms DESC, old.wait_ms DESC, old.client_id DESC, old.tenant DESC) <= 16),
rotated AS (
    SELECT date, tenant, principal, client_id, 'rotates' AS kind, to_client_id, 1::BIGINT AS n, at_ms
    FROM pairs
    WHERE at_ms <= wait_ms + 60000 AND client_id <> to_client_id
          AND (principal <> 'User:ANONYMOUS' OR levenshtein(client_id, to_client_id) * 3 <= length(client_id) + 3))
SELECT * FROM reconnected UNION ALL SELECT * FROM rotated;
