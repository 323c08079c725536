// Replicas: whether brokers hold the same batches at the same offsets.

function replicasPage(report) {
  return [note("Compared once the catalog has a partition in several sources.")];
}
