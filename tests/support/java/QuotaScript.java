import java.util.ArrayList;
import java.util.Collection;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.TreeMap;
import java.util.TreeSet;
import java.util.concurrent.ExecutionException;
import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.admin.AlterClientQuotasOptions;
import org.apache.kafka.clients.admin.AlterClientQuotasResult;
import org.apache.kafka.common.KafkaFuture;
import org.apache.kafka.common.quota.ClientQuotaAlteration;
import org.apache.kafka.common.quota.ClientQuotaEntity;
import org.apache.kafka.common.quota.ClientQuotaFilter;
import org.apache.kafka.common.quota.ClientQuotaFilterComponent;

/**
 * Prints the results of Java's Admin client for quotas, a line per call. QuotaScript ADDRESS RUN: each run makes some of the calls, so
 * that the caller can wait between two runs until the cluster's metadata has propagated.
 */
public final class QuotaScript {
    private final Admin admin;

    private QuotaScript(Admin admin) {
        this.admin = admin;
    }

    public static void main(String[] arguments) throws Exception {
        try (Admin admin = Admin.create(Map.of("bootstrap.servers", arguments[0]))) {
            QuotaScript script = new QuotaScript(admin);
            switch (arguments[1]) {
                case "set" -> script.set();
                case "describe" -> script.describe();
                case "refused" -> script.refused();
                case "remove" -> script.remove();
                default -> throw new IllegalArgumentException(arguments[1]);
            }
        }
    }

    private void set() throws Exception {
        List<ClientQuotaAlteration> alterations = new ArrayList<>();
        alterations.add(alteration(entity("user", "j-alice"), "producer_byte_rate", 20000.0, "consumer_byte_rate", 10000.0));
        alterations.add(alteration(entity("user", null), "request_percentage", 12.34));
        alterations.add(alteration(entity("user", "j-alice", "client-id", "j c/1"), "controller_mutation_rate", 0.5));
        alterations.add(alteration(entity("user", "j-alice", "client-id", null), "producer_byte_rate", 9.0E15));
        alterations.add(alteration(entity("client-id", "<default>"), "producer_byte_rate", 3.0));
        alterations.add(alteration(entity("ip", "127.0.0.77"), "connection_creation_rate", 100.0));
        alter("validate", alterations, true);
        alter("set", alterations, false);
    }

    private void describe() throws Exception {
        show("all", ClientQuotaFilter.all());
        show("users", ClientQuotaFilter.contains(List.of(ClientQuotaFilterComponent.ofEntityType("user"))));
        show("only users", ClientQuotaFilter.containsOnly(List.of(ClientQuotaFilterComponent.ofEntityType("user"))));
        show("alice", ClientQuotaFilter.contains(List.of(ClientQuotaFilterComponent.ofEntity("user", "j-alice"))));
        show("default", ClientQuotaFilter.containsOnly(List.of(ClientQuotaFilterComponent.ofDefaultEntity("user"))));
        show("ips", ClientQuotaFilter.contains(List.of(ClientQuotaFilterComponent.ofEntityType("ip"))));
        show("nobody", ClientQuotaFilter.contains(List.of(ClientQuotaFilterComponent.ofEntity("user", "nobody"))));
        show("nothing", ClientQuotaFilter.containsOnly(List.of()));
        show("unknown", ClientQuotaFilter.contains(List.of(ClientQuotaFilterComponent.ofEntityType("group"))));
        show("mixed", ClientQuotaFilter.contains(List.of(ClientQuotaFilterComponent.ofEntityType("ip"),
            ClientQuotaFilterComponent.ofEntityType("user"))));
        show("twice", ClientQuotaFilter.contains(List.of(ClientQuotaFilterComponent.ofEntity("user", "a"),
            ClientQuotaFilterComponent.ofEntity("user", "b"))));
    }

    private void refused() throws Exception {
        one(entity("user", ""), "producer_byte_rate", 1.0);
        one(entity("group", "g"), "producer_byte_rate", 1.0);
        one(entity("ip", "127.0.0.77", "user", "u"), "connection_creation_rate", 1.0);
        one(entity(), "producer_byte_rate", 1.0);
        one(entity("user", "j-bad"), "no_such_key", 1.0);
        one(entity("user", "j-bad"), "connection_creation_rate", 1.0);
        one(entity("ip", "127.0.0.77"), "producer_byte_rate", 1.0);
        one(entity("user", "j-bad"), "producer_byte_rate", -1.0);
        one(entity("user", "j-bad"), "producer_byte_rate", 1.5);
        one(entity("user", "j-bad"), "producer_byte_rate", 1e300);
        one(entity("user", "j-bad"), "producer_byte_rate", Double.POSITIVE_INFINITY);
        one(entity("ip", "127.0.0.77"), "connection_creation_rate", 1e10);
        one(entity("ip", "300.300.300.300"), "connection_creation_rate", 1.0);
        alter("one of two", List.of(alteration(entity("user", "j-bad"), "producer_byte_rate", -1.0),
            alteration(entity("user", "j-good"), "producer_byte_rate", 5.0)), false);
        alter("none", List.of(), false);
        alter("empty", List.of(alteration(entity("user", "j-empty"))), false);
    }

    private void remove() throws Exception {
        List<ClientQuotaAlteration> alterations = new ArrayList<>();
        Map<ClientQuotaEntity, Map<String, Double>> all = admin.describeClientQuotas(ClientQuotaFilter.all()).entities().get();
        for (Map.Entry<ClientQuotaEntity, Map<String, Double>> one : all.entrySet()) {
            List<ClientQuotaAlteration.Op> ops = new ArrayList<>();
            for (String key : one.getValue().keySet()) {
                ops.add(new ClientQuotaAlteration.Op(key, null));
            }
            ops.add(new ClientQuotaAlteration.Op("never_was", null));
            alterations.add(new ClientQuotaAlteration(one.getKey(), ops));
        }
        alter("remove", alterations, false);
    }

    private void one(ClientQuotaEntity entity, Object... ops) throws Exception {
        alter("refused", List.of(alteration(entity, ops)), false);
    }

    private void alter(String what, Collection<ClientQuotaAlteration> alterations, boolean validateOnly) throws Exception {
        AlterClientQuotasResult result = admin.alterClientQuotas(alterations, new AlterClientQuotasOptions().validateOnly(validateOnly));
        TreeSet<String> lines = new TreeSet<>();
        for (Map.Entry<ClientQuotaEntity, KafkaFuture<Void>> one : result.values().entrySet()) {
            lines.add(what + " " + text(one.getKey()) + ": " + outcome(one.getValue()));
        }
        lines.forEach(System.out::println);
    }

    private void show(String what, ClientQuotaFilter filter) throws Exception {
        KafkaFuture<Map<ClientQuotaEntity, Map<String, Double>>> found = admin.describeClientQuotas(filter).entities();
        TreeSet<String> lines = new TreeSet<>();
        String outcome = outcome(found);
        lines.add(what + ": " + outcome);
        if (outcome.equals("done")) {
            found.get().forEach((entity, values) -> lines.add(what + " " + text(entity) + ": " + new TreeMap<>(values)));
        }
        lines.forEach(System.out::println);
    }

    private static String outcome(KafkaFuture<?> future) throws InterruptedException {
        try {
            future.get();
            return "done";
        } catch (ExecutionException error) {
            return error.getCause().toString();
        }
    }

    private static String text(ClientQuotaEntity entity) {
        return new TreeMap<>(entity.entries()).toString();
    }

    private static ClientQuotaEntity entity(String... parts) {
        Map<String, String> entries = new HashMap<>();
        for (int at = 0; at < parts.length; at += 2) {
            entries.put(parts[at], parts[at + 1]);
        }
        return new ClientQuotaEntity(entries);
    }

    private static ClientQuotaAlteration alteration(ClientQuotaEntity entity, Object... ops) {
        List<ClientQuotaAlteration.Op> found = new ArrayList<>();
        for (int at = 0; at < ops.length; at += 2) {
            found.add(new ClientQuotaAlteration.Op((String) ops[at], (Double) ops[at + 1]));
        }
        return new ClientQuotaAlteration(entity, found);
    }
}
