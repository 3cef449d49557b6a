package e2e

import (
	"context"
	"crypto/sha256"
	"flag"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/psyche-go/psyche/record/event"
)

var replicaRounds = flag.Int("replica-rounds", 12, "rounds of the run of TestReplicasOfDifferentLibraries")

// Variables that name a second libtorch for this test.
const (
	envSecondShim   = "PSYCHE_TEST_SHIM2"   // shim built against it
	envSecondLoader = "PSYCHE_TEST_LOADER2" // command that starts a program with the C library of the second libtorch, if it needs a different C library
)

// roundTimeout limits a round on a machine that is busy with other work.
const roundTimeout = 10 * time.Second

// replicaEpoch is the number of rounds in an epoch. The clients compute a digest of all weights
// after each epoch. The replica hash of each round covers the applied results.
const replicaEpoch = 4

// machine is the computing environment of a client in this test.
type machine struct {
	name   string
	second bool   // the second libtorch, if there is one
	blas   string // OPENBLAS_CORETYPE; empty: OpenBLAS or the program chooses
	aten   string // ATEN_CPU_CAPABILITY; empty: the program chooses
	kernel string // of DisTrO; empty, or a kernel that this processor lacks, means the best kernel
	flags  []string
}

// machines differ in everything that may change the last bits of a gradient. The first four
// machines have the installed libtorch.
func machines() []machine {
	return []machine{
		{name: "newest", kernel: "avx512", flags: []string{"--threads", "1"}},
		{name: "two-threads", kernel: "avx2", blas: "Haswell", aten: "avx2", flags: []string{"--threads", "2"}},
		{name: "old", kernel: "baseline", blas: "Prescott", aten: "default", flags: []string{"--threads", "1"}},
		{name: "bf16", kernel: "go", flags: []string{"--threads", "2", "--compute-dtype", "auto"}},
		{name: "other", second: true, kernel: "avx512", blas: "Haswell", flags: []string{"--threads", "2", "--data-parallelism", "2", "--recompute"}},
		{name: "other-bf16", second: true, kernel: "go", aten: "avx2", flags: []string{"--threads", "1", "--compute-dtype", "auto"}},
	}
}

// TestReplicasOfDifferentLibraries trains with clients that differ in libtorch, in the kernels that
// libtorch and its BLAS select, in threads, in the type of gradients, and in the optimizer's
// kernel. Their gradients differ. But they must hold the same results after each round, and the
// same bits after each epoch.
func TestReplicasOfDifferentLibraries(t *testing.T) {
	t.Parallel()
	rounds := *replicaRounds
	if rounds < replicaEpoch || rounds%replicaEpoch != 0 {
		t.Fatalf("-replica-rounds %d: want a multiple of %d", rounds, replicaEpoch)
	}
	all := machines()
	n := newNetwork(t, rules{clients: len(all), minClients: 2, roundsPerEpoch: replicaEpoch, steps: rounds})
	giveTime(t, n)
	if os.Getenv(envSecondShim) == "" {
		t.Logf("%s is not set: all clients have the same libtorch", envSecondShim)
	}
	gradients := make(map[string]bool)
	var clients []*client
	for _, m := range all {
		c := m.client(n)
		report := examine(t, c, m)
		momentum := trainAlone(t, c, m)
		gradients[momentum] = true
		t.Logf("%s: %s; momentum after steps alone: %.8s", c.name, report, momentum)
		clients = append(clients, c)
	}
	if len(gradients) < 2 {
		t.Error("all machines compute the same gradients: this run would prove nothing")
	}
	n.startServer()
	for i, c := range clients {
		c.start(all[i].flags...)
	}
	limit := time.Now().Add(runTimeout + time.Duration(rounds)*roundTimeout)
	for _, c := range clients {
		c.exitCode(t, time.Until(limit)) // finish reports the failure; its limit is for short runs
	}
	digest := finish(t, clients...)
	checkRun(t, n, clients...)
	epochs := rounds / replicaEpoch
	checkDigests(t, epochs, digest, clients)
	for _, c := range clients {
		checkStayed(t, c, rounds)
		counted := 0
		for _, e := range c.events() {
			if body, ok := e.Body.(event.Applied); ok && body.OwnCounted {
				counted++
			}
		}
		t.Logf("%s: %d of %d results counted%s", c.name, counted, rounds, computedIn(t, c))
		if counted < rounds/2 {
			t.Errorf("%s: only %d results of %d rounds counted", c.name, counted, rounds)
		}
	}
	t.Logf("%d rounds, %d epochs, %d clients: digest %s", rounds, epochs, len(clients), digest)
}

// giveTime allows longer rounds, because the machine has fewer cores than the run has threads.
// Rounds still end as soon as they are complete.
func giveTime(t *testing.T, n *network) {
	t.Helper()
	content, err := os.ReadFile(n.state)
	if err != nil {
		t.Fatal(err)
	}
	text := string(content)
	for _, limit := range []string{"warmup_time = 60", "max_round_train_time = 30", "cooldown_time = 30"} {
		name, _, _ := strings.Cut(limit, " ")
		if !strings.Contains(text, limit) {
			t.Fatalf("state.toml has no %s", limit)
		}
		text = strings.Replace(text, limit, name+" = 300", 1)
	}
	writeFile(t, n.state, []byte(text))
}

// client creates a client with the machine's environment. It does not start the client.
func (m machine) client(n *network) *client {
	n.t.Helper()
	c := n.newClient(m.name)
	if m.second && os.Getenv(envSecondShim) != "" {
		c.env = append(c.env, "PSYCHE_TORCH_SHIM="+os.Getenv(envSecondShim))
		if loader := strings.Fields(os.Getenv(envSecondLoader)); len(loader) > 0 {
			c.wrap = func(program string, args ...string) (string, []string) {
				return loader[0], slices.Concat(loader[1:], []string{program}, args)
			}
		}
	}
	c.env = append(c.env, "OPENBLAS_CORETYPE="+m.blas, "PSYCHE_DISTRO_ISA="+m.kernel)
	if m.aten != "" {
		c.env = append(c.env, "ATEN_CPU_CAPABILITY="+m.aten)
	}
	return c
}

// command runs one of the client's commands on its machine to its end.
func (c *client) command(args ...string) (string, error) {
	c.network.t.Helper()
	program := clientBinary
	if c.wrap != nil {
		program, args = c.wrap(program, args...)
	}
	ctx, cancel := context.WithTimeout(c.network.t.Context(), commandTimeout)
	defer cancel()
	command := exec.CommandContext(ctx, program, args...)
	command.Env = append(clientEnv(), c.env...)
	out, err := command.CombinedOutput()
	return string(out), err
}

// examine checks with the doctor that the machine has the wanted environment, and returns a
// description of it. If the processor lacks the wanted kernel of the optimizer, the client selects
// a kernel.
func examine(t *testing.T, c *client, m machine) string {
	t.Helper()
	threads := m.flags[slices.Index(m.flags, "--threads")+1]
	report, err := c.command("doctor", "--threads", threads)
	if err != nil && strings.Contains(report, "PSYCHE_DISTRO_ISA") {
		t.Logf("%s: this processor has no kernel %q", c.name, m.kernel)
		c.env = append(c.env, "PSYCHE_DISTRO_ISA=")
		report, err = c.command("doctor", "--threads", threads)
	}
	if err != nil {
		t.Fatalf("doctor of %s: %v\n%s", c.name, err, report)
	}
	facts := make(map[string]string)
	for line := range strings.Lines(report) {
		const name = 22 // bytes that it is padded to
		if len(line) > name {
			facts[strings.TrimSpace(line[:name])] = strings.TrimSpace(line[name:])
		}
	}
	wanted := map[string]string{"threads": threads}
	if m.blas != "" {
		wanted["OPENBLAS_CORETYPE"] = m.blas + " (environment)"
	}
	if m.aten != "" {
		wanted["ATEN_CPU_CAPABILITY"] = m.aten + " (environment)"
	}
	for _, name := range slices.Sorted(maps.Keys(wanted)) {
		if facts[name] != wanted[name] {
			t.Errorf("doctor of %s reports %s %q, want %q", c.name, name, facts[name], wanted[name])
		}
	}
	return fmt.Sprintf("libtorch %s; BLAS kernels: %s; DisTrO kernel: %s; %s",
		facts["libtorch"], facts["BLAS kernels"], facts["DisTrO kernel"], strings.Join(m.flags, " "))
}

// trainAlone trains a few steps of the run alone and returns the hash of the optimizer's state.
// Equal gradients give equal hashes.
func trainAlone(t *testing.T, c *client, m machine) string {
	t.Helper()
	saved := filepath.Join(c.dir, "alone")
	out, err := c.command(slices.Concat([]string{
		"solo", "--model", c.network.model, "--data-path", c.network.data, "--seq-len", strconv.Itoa(seqLen),
		"--total-batch", "2", "--micro-batch", "1", "--steps", "4",
		"--optimizer", "distro", "--compression-chunk", "32", "--save", saved,
	}, m.flags)...)
	if err != nil {
		t.Fatalf("%s trains alone: %v\n%s", c.name, err, out)
	}
	content, err := os.ReadFile(filepath.Join(saved, "optimizer.safetensors"))
	if err != nil {
		t.Fatal(err)
	}
	return fmt.Sprintf("%x", sha256.Sum256(content))
}

// computedIn returns the type that a client logged as its choice.
func computedIn(t *testing.T, c *client) string {
	t.Helper()
	for line := range strings.Lines(c.text(t)) {
		if _, said, found := strings.Cut(line, "computing in "); found {
			return " (computed in " + strings.Fields(said)[0] + ")"
		}
	}
	return ""
}

// checkDigests checks that all clients had the same weights after each epoch, that the weights
// changed, and that the last weights are the final weights of the run.
func checkDigests(t *testing.T, epochs int, last string, clients []*client) {
	t.Helper()
	held := make(map[uint32]string) // after a step
	for _, c := range clients {
		seen := make(map[string]bool)
		for _, e := range c.events() {
			body, ok := e.Body.(event.Checkpoint)
			if !ok {
				continue
			}
			if other, known := held[body.Step]; known && other != body.Digest {
				t.Errorf("step %d: %s has %s, a different client has %s", body.Step, c.name, body.Digest, other)
			}
			held[body.Step], seen[body.Digest] = body.Digest, true
		}
		if len(seen) != epochs {
			t.Errorf("%s reported %d different models after %d epochs", c.name, len(seen), epochs)
		}
		if !seen[last] {
			t.Errorf("%s never reported the last model %s", c.name, last)
		}
	}
	for _, step := range slices.Sorted(maps.Keys(held)) {
		t.Logf("after step %d: %s", step, held[step])
	}
}
