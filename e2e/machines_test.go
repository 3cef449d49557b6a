package e2e

import "testing"

// TestMachinesThatDiffer has clients whose BLAS kernels, vector instructions and threads
// differ, so that their gradients do. What they make of the results must not.
func TestMachinesThatDiffer(t *testing.T) {
	t.Parallel()
	n := newNetwork(t, rules{clients: 3, minClients: 2, roundsPerEpoch: 4, steps: 8})
	n.startServer()
	var clients []*client
	for _, machine := range []struct {
		name, threads string
		env           []string
	}{
		{"haswell", "1", []string{"OPENBLAS_CORETYPE=Haswell", "PSYCHE_DISTRO_ISA=baseline"}},
		{"old", "1", []string{"OPENBLAS_CORETYPE=Prescott", "ATEN_CPU_CAPABILITY=default", "PSYCHE_DISTRO_ISA=go"}},
		{"two-threads", "2", []string{"OPENBLAS_CORETYPE="}},
	} {
		c := n.newClient(machine.name)
		c.env = machine.env
		c.start("--threads", machine.threads)
		clients = append(clients, c)
	}
	finish(t, clients...)
	checkRun(t, n, clients...)
	for _, c := range clients {
		checkStayed(t, c, 8)
	}
}
