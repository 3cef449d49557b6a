package e2e

import (
	"bufio"
	"context"
	"crypto/sha256"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/psyche-go/psyche/base/identity"
	"github.com/psyche-go/psyche/record/event"
)

const (
	seqLen    = 32
	vocabSize = 256

	modelConfig = `{
  "architectures": ["LlamaForCausalLM"], "model_type": "llama", "vocab_size": 256,
  "hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 1, "num_attention_heads": 2,
  "num_key_value_heads": 1, "head_dim": 16, "hidden_act": "silu", "max_position_embeddings": 64,
  "rms_norm_eps": 1e-05, "rope_theta": 10000.0, "tie_word_embeddings": false, "initializer_range": 0.02
}`
)

// rules are the differences between the runs of the tests.
type rules struct {
	clients        int // init_min_clients
	minClients     int
	roundsPerEpoch int
	steps          int
}

// stateFile is a state.toml for tests, with short times where the speed of machines does not
// matter.
func stateFile(r rules, dataPath, modelPath string) string {
	return fmt.Sprintf(`run_id = "e2e"
[config]
init_min_clients = %d
min_clients = %d
waiting_for_members_extra_time = 1
warmup_time = 60
rounds_per_epoch = %d
max_round_train_time = 30
round_witness_time = 1
cooldown_time = 30
witness_nodes = 0
verification_percent = 0
global_batch_size_start = 6
global_batch_size_end = 6
global_batch_size_warmup_tokens = 0
total_steps = %d
[model.LLM]
architecture = "HfLlama"
data_type = "Pretraining"
max_seq_len = %d
cold_start_warmup_steps = 0
[model.LLM.data_location.Local]
path = %q
token_size_in_bytes = "TwoBytes"
shuffle = "DontShuffle"
[model.LLM.checkpoint.Local]
path = %q
[model.LLM.lr_schedule.Constant]
base_lr = 1.0e-3
warmup_steps = 0
warmup_init_lr = 0.0
[model.LLM.optimizer.Distro]
clip_grad_norm = 1.0
compression_decay = 0.9
compression_topk = 8
compression_chunk = 32
quantize_1bit = true
`, r.clients, r.minClients, r.roundsPerEpoch, r.steps, seqLen, dataPath, modelPath)
}

// network is the folder of one test with the parts of its run.
type network struct {
	t       *testing.T
	dir     string
	data    string
	model   string
	state   string // path of state.toml
	saved   string // the server's save-state folder
	address string // address of the server; known after its first start
	server  *process
	lives   int
	wrap    func(program string, args ...string) (string, []string) // runs the server on a different host; may be nil
}

// newNetwork creates model, tokens and configuration. It starts nothing.
func newNetwork(t *testing.T, r rules) *network {
	t.Helper()
	needClient(t)
	dir := t.TempDir()
	n := &network{
		t: t, dir: dir,
		data: filepath.Join(dir, "data"), model: filepath.Join(dir, "model"),
		state: filepath.Join(dir, "state.toml"), saved: filepath.Join(dir, "saved"),
	}
	text := filepath.Join(dir, "text.txt")
	var lines strings.Builder
	for i := range 400 {
		fmt.Fprintf(&lines, "line %d of a text that repeats itself, line after line\n", i)
	}
	writeFile(t, text, []byte(lines.String()))
	must(t, serverBinary, "data", "tokenize", "--output", n.data, text)
	configPath := filepath.Join(dir, "config.json")
	writeFile(t, configPath, []byte(modelConfig))
	must(t, clientBinary, "init-model", "--config", configPath, "--seed", "1", "--output", n.model)
	writeFile(t, n.state, []byte(stateFile(r, n.data, n.model)))
	return n
}

// startServer starts the server. After a restart, it has the same address.
func (n *network) startServer(flags ...string) *process {
	n.t.Helper()
	port := "0"
	if n.address != "" {
		_, port, _ = net.SplitHostPort(n.address)
	}
	args := append([]string{
		"server", "run", "--state", n.state, "--server-addr", "127.0.0.1", "--server-port", port,
		"--save-state-dir", n.saved, "--events-dir", filepath.Join(n.dir, "server"), "--log", "json",
	}, flags...)
	n.lives++
	program := serverBinary
	if n.wrap != nil {
		program, args = n.wrap(program, args...)
	}
	n.server = start(n.t, "server", filepath.Join(n.dir, fmt.Sprintf("server-%d.log", n.lives)), program, nil, args...)
	n.server.waitText(n.t, "server is listening", 1)
	n.address = listeningOn(n.t, n.server.text(n.t))
	return n.server
}

// listeningOn finds the address in a server's JSON log.
func listeningOn(t *testing.T, log string) string {
	t.Helper()
	for lines := bufio.NewScanner(strings.NewReader(log)); lines.Scan(); {
		var line struct{ Msg, Address string }
		if json.Unmarshal(lines.Bytes(), &line) == nil && line.Msg == "server is listening" {
			return line.Address
		}
	}
	t.Fatalf("no address in the server's log:\n%s", log)
	return ""
}

// client is one participant. Its key, event log and checkpoints are the same after a restart.
type client struct {
	*process // process of the newest start
	network  *network
	name     string
	dir      string
	id       string
	key      string                                                  // path
	env      []string                                                // additional environment of its processes
	wrap     func(program string, args ...string) (string, []string) // runs the client on a different host; may be nil
}

// newClient creates a key. It does not start the client.
func (n *network) newClient(name string) *client {
	n.t.Helper()
	dir := filepath.Join(n.dir, name)
	if err := os.Mkdir(dir, 0o755); err != nil {
		n.t.Fatal(err)
	}
	key := identity.FromSeed(sha256.Sum256([]byte(name)))
	path := filepath.Join(dir, "key.json")
	if err := identity.SaveKeyFile(path, key); err != nil {
		n.t.Fatal(err)
	}
	return &client{network: n, name: name, dir: dir, id: key.ID().String(), key: path}
}

// startClients creates and starts n clients.
func (n *network) startClients(count int, flags ...string) []*client {
	n.t.Helper()
	var clients []*client
	for i := range count {
		c := n.newClient(fmt.Sprintf("client-%d", i+1))
		c.start(flags...)
		clients = append(clients, c)
	}
	return clients
}

// args returns the command line of a start. Later flags override earlier flags.
func (c *client) args(flags ...string) []string {
	return append([]string{
		"train", "--run-id", "e2e", "--server-addr", c.network.address,
		"--identity-secret-key-path", c.key, "--bind-p2p-address", "127.0.0.1",
		"--allow-local-paths", "--allow-inner-data", "--events-dir", c.dir, "--checkpoint-dir", filepath.Join(c.dir, "checkpoints"),
		"--keep-steps", "0", "--threads", "1", "--device", "cpu", "--max-blob-memory", "64",
		"--known-servers", c.network.saved + ".known",
	}, flags...)
}

// start starts the client's process.
func (c *client) start(flags ...string) {
	c.network.t.Helper()
	program, args := clientBinary, c.args(flags...)
	if c.wrap != nil {
		program, args = c.wrap(program, args...)
	}
	c.process = start(c.network.t, c.name, filepath.Join(c.dir, "output.log"), program, c.env, args...)
}

func (c *client) eventsPath() string { return filepath.Join(c.dir, "events.jsonl") }

// events returns the events of all starts so far.
func (c *client) events() []event.Event {
	c.network.t.Helper()
	return readEvents(c.network.t, c.eventsPath())
}

func readEvents(t *testing.T, path string) []event.Event {
	t.Helper()
	var events []event.Event
	for e, err := range event.Read(path) {
		if err != nil {
			t.Fatal(err)
		}
		events = append(events, e)
	}
	return events
}

// waitEvent reads the event log from its start until a condition holds for an event.
func waitEvent(t *testing.T, path, subject string, wanted func(event.Body) bool) event.Body {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), runTimeout)
	defer cancel()
	for e, err := range event.Follow(ctx, path) {
		if err != nil {
			t.Fatal(err)
		}
		if wanted(e.Body) {
			return e.Body
		}
	}
	t.Fatalf("%s: no event in which %s within %v", path, subject, runTimeout)
	return nil
}

// waitState waits until a condition holds for a state that the client saw.
func (c *client) waitState(subject string, wanted func(event.State) bool) {
	c.network.t.Helper()
	waitEvent(c.network.t, c.eventsPath(), subject, func(body event.Body) bool {
		state, ok := body.(event.State)
		return ok && wanted(state)
	})
}

// waitPhase waits until the client saw a phase of a step.
func (c *client) waitPhase(runState string, step uint32) {
	c.network.t.Helper()
	waitPhase(c.network.t, c.eventsPath(), runState, step)
}

// waitPhase waits until an event log has a phase of a step, or a later step.
func waitPhase(t *testing.T, events, runState string, step uint32) {
	t.Helper()
	waitEvent(t, events, fmt.Sprintf("the run is in %s of step %d or later", runState, step), func(body event.Body) bool {
		s, ok := body.(event.State)
		return ok && (s.Step > step || s.Step == step && s.RunState == runState)
	})
}

// waitFor waits for the first event of a kind.
func waitFor[E event.Body](c *client) E {
	c.network.t.Helper()
	var kind E
	return waitEvent(c.network.t, c.eventsPath(), "the kind is "+kind.Kind(), func(body event.Body) bool {
		_, ok := body.(E)
		return ok
	}).(E)
}

// finish waits until every client has ended with exit code 0. It returns the digest of the model
// that all clients have.
func finish(t *testing.T, clients ...*client) string {
	t.Helper()
	limit := time.Now().Add(runTimeout)
	var digest string
	for _, c := range clients {
		if code := c.exitCode(t, time.Until(limit)); code != 0 {
			t.Fatalf("%s ended with exit code %d", c.name, code)
		}
		noPanic(t, c.name, c.text(t))
		last := c.events()
		for len(last) > 1 && comesAfter(last[len(last)-1].Body) {
			last = last[:len(last)-1]
		}
		finished, ok := last[len(last)-1].Body.(event.Finished)
		if !ok || finished.Digest == "" {
			t.Fatalf("last event of %s is %+v, want finished with a digest", c.name, last[len(last)-1].Body)
		}
		if digest == "" {
			digest = finished.Digest
		}
		if finished.Digest != digest {
			t.Errorf("%s holds %s, %s holds %s", c.name, finished.Digest, clients[0].name, digest)
		}
	}
	return digest
}

func writeFile(t *testing.T, path string, content []byte) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, content, 0o644); err != nil {
		t.Fatal(err)
	}
}

// writeTokens writes a file of two-byte tokens.
func writeTokens(t *testing.T, path string, tokens []uint16) {
	t.Helper()
	var content []byte
	for _, token := range tokens {
		content = binary.LittleEndian.AppendUint16(content, token)
	}
	writeFile(t, path, content)
}

// contents returns every file below a folder with the hash of its content.
func contents(t *testing.T, dir string) map[string]string {
	t.Helper()
	files := map[string]string{}
	err := filepath.WalkDir(dir, func(path string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() {
			return err
		}
		content, err := os.ReadFile(path)
		name, _ := filepath.Rel(dir, path)
		files[name] = fmt.Sprintf("%d bytes, %x", len(content), sha256.Sum256(content))
		return err
	})
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		t.Fatal(err)
	}
	return files
}

// comesAfter reports whether an event may follow the end: payments on a chain, and uploads of the
// final model.
func comesAfter(body event.Body) bool {
	switch body.(type) {
	case event.Paid, event.Transfer:
		return true
	}
	return false
}
