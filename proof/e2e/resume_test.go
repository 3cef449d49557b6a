package e2e

import (
	"fmt"
	"net"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"testing"
)

// testnetArgs are the arguments of a testnet with two clients of the network's run, in a separate
// folder.
func (n *network) testnetArgs(flags ...string) []string {
	n.t.Helper()
	config := filepath.Join(n.dir, "config")
	if err := os.MkdirAll(config, 0o755); err != nil {
		n.t.Fatal(err)
	}
	for _, name := range []string{"state.toml", "data.toml"} {
		if text, err := os.ReadFile(filepath.Join(n.dir, name)); err == nil {
			writeFile(n.t, filepath.Join(config, name), text)
		}
	}
	if !slices.Contains(flags, "solana") { // other tests and programs may take the default port while this one starts
		_, port, err := net.SplitHostPort(freeAddress(n.t))
		if err != nil {
			n.t.Fatal(err)
		}
		flags = append(flags, "--server-port", port)
	}
	return append([]string{
		"testnet", "start", "--client", clientBinary, "--config-path", config, "--num-clients", "2",
		"--run-dir", filepath.Join(n.dir, "runs"), "--no-tui", "--threads", "1", "--timeout", runTimeout.String(),
	}, flags...)
}

// TestInterruptedTestnetLosesNothing closes the terminal of a testnet that serves its data, in the
// middle of an epoch. The testnet must resume with the model of the last counted round.
func TestInterruptedTestnetLosesNothing(t *testing.T) {
	t.Parallel()
	text, dir := interruptAndResume(t, syscall.SIGHUP, 120, 8)
	journals, err := filepath.Glob(filepath.Join(dir, "server", "*.journal"))
	if err != nil || len(journals) != 1 {
		t.Fatalf("journals %q, %v", journals, err)
	}
	completeLog(t, journals[0], text)
}

// TestInterruptedChainLosesNothing repeats TestInterruptedTestnetLosesNothing on a chain of this
// machine. The chain resumes with its transactions: the archive must contain the run from its
// beginning to its end.
func TestInterruptedChainLosesNothing(t *testing.T) {
	t.Parallel()
	text, dir := interruptAndResume(t, syscall.SIGINT, 20, 5, "--backend", "solana", "--slot-ms", "50")
	if chain := regexp.MustCompile(`the chain continues after slot \d+, from \S+chain.ledger\n`); !chain.MatchString(text) {
		t.Errorf("the resumed testnet does not report the origin of its chain:\n%s", text)
	}
	completeLog(t, filepath.Join(dir, "server", "run.archive"), text)
}

// completeLog checks that a log belongs to a finished run and has every counted round in its model.
func completeLog(t *testing.T, log, text string) {
	t.Helper()
	if out := must(t, serverBinary, "run", "replay", log); !strings.Contains(out, "Finished") || strings.Contains(out, "not in the model") {
		t.Errorf("%s reports:\n%s\nthe testnet reported:\n%s", log, out, text)
	}
}

// interruptAndResume interrupts a testnet by a signal in the middle of its only epoch and resumes
// it. It returns the output of the resumed testnet, and the run's folder.
func interruptAndResume(t *testing.T, by syscall.Signal, rounds, in int, flags ...string) (said, dir string) {
	t.Helper()
	n := newNetwork(t, rules{clients: 2, minClients: 1, roundsPerEpoch: rounds, steps: rounds})
	n.served(`"` + freeAddress(t) + `"`)
	first := start(t, "testnet", filepath.Join(n.dir, "first.txt"), serverBinary, nil, n.testnetArgs(flags...)...)
	first.waitText(t, fmt.Sprintf("\nround %3d/", in), 1)
	first.Signal(by)
	if code := first.exitCode(t, runTimeout); code != 130 {
		t.Fatalf("exit code %d of an interrupted testnet, want 130", code)
	}
	text := first.text(t)
	paused := regexp.MustCompile(`the run is paused before round \d+; the model of (step \d+) is on the disks of 2 clients`).FindStringSubmatch(text)
	again := regexp.MustCompile(`continue with: psyche (testnet start --resume (\S+).*)`).FindStringSubmatch(text)
	if paused == nil || again == nil {
		t.Fatalf("no message about a pause or how to continue:\n%s", tail(text, 30))
	}
	next := start(t, "resumed testnet", filepath.Join(n.dir, "next.txt"), serverBinary, nil, append(strings.Fields(again[1]), "--no-tui", "--client", clientBinary)...)
	next.waitText(t, "continues with the model of "+paused[1]+" from its disk", 2)
	if code := next.exitCode(t, runTimeout); code != 0 {
		t.Fatalf("exit code %d of the resumed testnet\n%s", code, tail(next.text(t), 30))
	}
	if resumed := "its newest recorded model, of " + paused[1] + ", from the disk of client-1, client-2\n"; !strings.Contains(next.text(t), resumed) {
		t.Errorf("the output of the resumed testnet does not contain %q:\n%s", resumed, next.text(t))
	}
	return next.text(t), again[2]
}
