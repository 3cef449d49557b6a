package e2e

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/psyche-go/psyche/face/testnet"
)

// TestSolanaTestnet trains on a chain of this machine. One of three clients is killed and returns.
// All clients must end with the same model and must have paid from their own keys. The testnet
// serves the data.
func TestSolanaTestnet(t *testing.T) {
	t.Parallel()
	testnetOnChain(t, 8, "--slot-ms", "50")
}

// TestSolanaValidator repeats TestSolanaTestnet on a real chain, if a validator is installed.
func TestSolanaValidator(t *testing.T) {
	validator := os.Getenv("SOLANA_TEST_VALIDATOR")
	if validator == "" {
		found, err := exec.LookPath("solana-test-validator")
		if err != nil {
			t.Skip("solana-test-validator is not installed: put it into PATH, or name it in SOLANA_TEST_VALIDATOR")
		}
		validator = found
	}
	testnetOnChain(t, 12, "--validator", validator)
}

// testnetOnChain starts a testnet on a chain with epochs of four rounds.
func testnetOnChain(t *testing.T, steps int, flags ...string) {
	t.Helper()
	n := newNetwork(t, rules{clients: 3, minClients: 2, roundsPerEpoch: 4, steps: steps})
	data := n.served(`"` + freeAddress(t) + `"`)
	config, runs := filepath.Join(n.dir, "config"), filepath.Join(n.dir, "runs")
	if err := os.Mkdir(config, 0o755); err != nil {
		t.Fatal(err)
	}
	for _, file := range []string{n.state, data} {
		if err := os.Rename(file, filepath.Join(config, filepath.Base(file))); err != nil {
			t.Fatal(err)
		}
	}
	args := append([]string{
		"testnet", "start", "--backend", "solana", "--num-clients", "3", "--config-path", config, "--run-dir", runs,
		"--client", clientBinary, "--kill-at-step", "2", "--restart-delay", "1", "--threads", "1", "--tui", "false", "--timeout", "5m",
	}, flags...)
	command := exec.CommandContext(t.Context(), serverBinary, args...)
	command.Env = clientEnv()
	out, err := command.CombinedOutput()
	if err != nil {
		t.Fatalf("psyche %s: %v\n%s", strings.Join(args, " "), err, out)
	}
	s := testnetSummary(t, runs)
	if !s.Finished || s.Rounds != steps || s.Chain == nil {
		t.Fatalf("summary %+v\n%s", s, out)
	}
	checkCosts(t, s, string(out))
	if code, err := exec.CommandContext(t.Context(), serverBinary, "run", "replay", s.Chain.Archive).CombinedOutput(); err != nil {
		t.Errorf("psyche run replay: %v\n%s", err, code)
	}
}

// testnetSummary reads the summary of the only testnet in a folder.
func testnetSummary(t *testing.T, runs string) (s testnet.Summary) {
	t.Helper()
	found, err := filepath.Glob(filepath.Join(runs, "*", "summary.json"))
	if err != nil || len(found) != 1 {
		t.Fatalf("summaries %q, %v", found, err)
	}
	text, err := os.ReadFile(found[0])
	if err == nil {
		err = json.Unmarshal(text, &s)
	}
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// checkCosts examines the payments of the clients of a testnet on a chain.
func checkCosts(t *testing.T, s testnet.Summary, out string) {
	t.Helper()
	returned := 0
	for i, c := range s.Clients {
		if c.Digest == "" || c.Digest != s.Clients[0].Digest {
			t.Errorf("client %d has model %q, the first %q", i+1, c.Digest, s.Clients[0].Digest)
		}
		// One witness proof per round, and the costs of joining and of checkpoints.
		if c.Transactions < c.RoundsTrained || c.Lamports < uint64(c.Transactions)*5000 {
			t.Errorf("client %d: %d transactions for %d lamports in %d rounds", i+1, c.Transactions, c.Lamports, c.RoundsTrained)
		}
		if c.Rejoined && c.Restarts == 1 {
			returned++
		}
	}
	if returned != 1 {
		t.Errorf("%d clients returned after a kill, want 1", returned)
	}
	if s.Chain.PerRound <= 1 || s.Chain.PerRound > 20 || s.Chain.Rent == 0 || s.Chain.SetUp == 0 {
		t.Errorf("costs: %+v", *s.Chain)
	}
	if !strings.Contains(out, "SOL per client and round") {
		t.Errorf("no costs in\n%s", out)
	}
}
