package e2e

import (
	"bytes"
	"encoding/binary"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/psyche-go/psyche/record/event"
)

// refused runs a command that must fail with a message that contains all words: names, flags and
// values. The command must not change a file of dir.
func refused(t *testing.T, dir string, words []string, binary string, args ...string) {
	t.Helper()
	before := contents(t, dir)
	code, out := run(t, binary, args...)
	checkRefusal(t, args[0], code, out, words)
	after := contents(t, dir)
	for name, content := range before {
		if after[name] != content {
			t.Errorf("%s was %s, is %q", name, content, after[name])
		}
	}
}

// checkRefusal checks how a program failed: the error is its last line.
func checkRefusal(t *testing.T, name string, code int, out string, words []string) {
	t.Helper()
	if code <= 0 || code > 5 {
		t.Errorf("%s: exit code %d\n%s", name, code, out)
	}
	noPanic(t, name, out)
	start := max(strings.LastIndex(out, "psyche: "), strings.LastIndex(out, "psyche-client: "))
	if start < 0 {
		t.Fatalf("%s printed no error:\n%s", name, out)
	}
	for _, word := range words {
		if !strings.Contains(out[start:], word) {
			t.Errorf("%s: the error does not contain %q:\n%s", name, word, out[start:])
		}
	}
}

func replaceIn(t *testing.T, path, old, replacement string) {
	t.Helper()
	content, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Contains(content, []byte(old)) {
		t.Fatalf("%s holds no %q", path, old)
	}
	writeFile(t, path, bytes.Replace(content, []byte(old), []byte(replacement), 1))
}

func TestUnknownConfigurationKey(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	state := filepath.Join(dir, "state.toml")
	writeFile(t, state, []byte(stateFile(rules{1, 1, 2, 2}, dir, dir)))
	replaceIn(t, state, "cooldown_time", "cooldwn_time")
	for name, args := range map[string][]string{
		"validate-config": {"server", "validate-config", "--state", state},
		"run":             {"server", "run", "--state", state, "--server-addr", "127.0.0.1", "--save-state-dir", filepath.Join(dir, "saved")},
		"testnet":         {"testnet", "start", "--config-path", dir, "--run-dir", filepath.Join(dir, "runs")},
	} {
		t.Run(name, func(t *testing.T) {
			refused(t, dir, []string{state, "cooldwn_time", "cooldown_time"}, serverBinary, args...)
		})
	}
	if files := contents(t, dir); len(files) != 1 {
		t.Errorf("files were created for a wrong configuration: %v", files)
	}
}

func TestServerPortInUse(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	state := filepath.Join(dir, "state.toml")
	writeFile(t, state, []byte(stateFile(rules{1, 1, 2, 2}, dir, dir)))
	listener := listen(t)
	_, port, _ := net.SplitHostPort(listener.Addr().String())
	refused(t, dir, []string{listener.Addr().String()}, serverBinary,
		"server", "run", "--state", state, "--server-addr", "127.0.0.1", "--server-port", port, "--save-state-dir", filepath.Join(dir, "saved"))
}

// inputs are the wrong data and models of the tests.
type inputs struct {
	missing, empty, odd, large string // data folders
	truncated, headless, huge  string // model folders
}

func makeInputs(t *testing.T, n *network) inputs {
	t.Helper()
	at := func(name string) string { return filepath.Join(n.dir, "wrong", name) }
	in := inputs{at("missing"), at("empty"), at("odd"), at("large"), at("truncated"), at("headless"), at("huge")}
	if err := os.MkdirAll(in.empty, 0o755); err != nil {
		t.Fatal(err)
	}
	writeFile(t, filepath.Join(in.odd, "a.ds"), bytes.Repeat([]byte{'x'}, 401))
	tokens := make([]uint16, 40*seqLen)
	for i := range tokens {
		tokens[i] = uint16(i % vocabSize)
	}
	tokens[3*seqLen+5] = 513 // in the first batch of a run
	writeTokens(t, filepath.Join(in.large, "a.ds"), tokens)

	weights, err := os.ReadFile(filepath.Join(n.model, "model.safetensors"))
	if err != nil {
		t.Fatal(err)
	}
	huge := bytes.Clone(weights)
	binary.LittleEndian.PutUint64(huge, 1<<60) // the length of the header
	for dir, content := range map[string][]byte{in.truncated: weights[:len(weights)-10], in.headless: weights[:4], in.huge: huge} {
		if err := os.CopyFS(dir, os.DirFS(n.model)); err != nil {
			t.Fatal(err)
		}
		writeFile(t, filepath.Join(dir, "model.safetensors"), content)
	}
	return in
}

// wrongData are the cases that every command that reads data must refuse.
func (in inputs) wrongData() map[string]struct {
	data  string
	words []string
} {
	return map[string]struct {
		data  string
		words []string
	}{
		"missing folder":    {in.missing, []string{in.missing, "psyche data tokenize"}},
		"folder without":    {in.empty, []string{in.empty, ".ds"}},
		"odd length":        {in.odd, []string{filepath.Join(in.odd, "a.ds"), "401"}},
		"token id too high": {in.large, []string{filepath.Join(in.large, "a.ds"), "513", "256"}},
	}
}

func TestWrongInputOfCommands(t *testing.T) {
	t.Parallel()
	n := newNetwork(t, rules{1, 1, 2, 2})
	in := makeInputs(t, n)
	out := filepath.Join(n.dir, "out")
	solo := func(model, data string) []string {
		return []string{"solo", "--model", model, "--data-path", data, "--total-batch", "4", "--micro-batch", "2",
			"--steps", "2", "--seq-len", "32", "--threads", "1", "--save", out}
	}
	evaluate := func(model, data string) []string {
		return []string{"evaluate", "--model", model, "--data", data, "--seq-len", "32", "--threads", "1"}
	}
	for name, test := range in.wrongData() {
		t.Run(name, func(t *testing.T) {
			refused(t, n.dir, test.words, clientBinary, solo(n.model, test.data)...)
			refused(t, n.dir, test.words, clientBinary, evaluate(n.model, test.data)...)
		})
	}
	for name, model := range map[string]string{"truncated": in.truncated, "no header": in.headless, "huge header": in.huge} {
		t.Run(name, func(t *testing.T) {
			words := []string{filepath.Join(model, "model.safetensors")}
			refused(t, n.dir, words, clientBinary, solo(model, n.data)...)
			refused(t, n.dir, words, clientBinary, evaluate(model, n.data)...)
		})
	}
	t.Run("occupied", func(t *testing.T) {
		refused(t, n.dir, []string{n.model}, clientBinary,
			"init-model", "--config", filepath.Join(n.dir, "config.json"), "--output", n.model)
	})
	if _, err := os.Stat(out); err == nil {
		t.Errorf("%s was made", out)
	}
}

// TestWrongInputOfClient joins runs with wrong data and models: a client that cannot do its part
// must end with the reason.
func TestWrongInputOfClient(t *testing.T) {
	t.Parallel()
	shared := newNetwork(t, rules{1, 1, 2, 2})
	in := makeInputs(t, shared)
	type test struct {
		flags []string
		words []string
		joins bool // detected after the model or the data was read
	}
	tests := map[string]test{
		"truncated model": {[]string{"--model-path", in.truncated}, []string{filepath.Join(in.truncated, "model.safetensors")}, true},
		"missing model":   {[]string{"--model-path", in.missing}, []string{in.missing, "config.json"}, false},
		"private folders": {[]string{"--allow-local-paths=false"}, []string{"--model-path", "--data-path", "--allow-local-paths"}, false},
	}
	for name, wrong := range in.wrongData() {
		tests[name] = test{[]string{"--data-path", wrong.data}, wrong.words, wrong.data == in.large}
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			n := newNetwork(t, rules{1, 1, 2, 2})
			n.startServer()
			c := n.newClient("client")
			refused(t, shared.dir, test.words, clientBinary, c.args(test.flags...)...)
			events := c.events()
			if _, ok := events[len(events)-1].Body.(event.Failed); !ok {
				t.Errorf("last event is %+v, want failed", events[len(events)-1].Body)
			}
			joined := slices.ContainsFunc(events, func(e event.Event) bool { _, joined := e.Body.(event.Joined); return joined })
			if joined != test.joins {
				t.Errorf("joined: %v, want %v", joined, test.joins)
			}
		})
	}
}

func TestRefusedByServer(t *testing.T) {
	t.Parallel()
	n := newNetwork(t, rules{clients: 2, minClients: 2, roundsPerEpoch: 2, steps: 4})
	n.startServer()
	first := n.newClient("first")
	first.start()
	waitFor[event.Joined](first)

	second := n.newClient("second")
	args := second.args("--identity-secret-key-path", first.key)
	refused(t, n.data, []string{n.address, first.id}, clientBinary, args...)

	args = second.args("--run-id", "another")
	refused(t, n.data, []string{n.address, `"another"`, "e2e"}, clientBinary, args...)

	second.start()
	finish(t, first, second) // the first client was not disturbed
	checkRun(t, n, first, second)
	for _, c := range []*client{first, second} {
		checkStayed(t, c, 4)
	}
}

func TestServerNotThere(t *testing.T) {
	t.Parallel()
	n := newNetwork(t, rules{1, 1, 2, 2})
	n.address = freeAddress(t)
	c := n.newClient("client")
	refused(t, n.dir, []string{"--server-timeout"}, clientBinary, c.args("--server-timeout", "0s")...)
	begun := time.Now()
	code, out := run(t, clientBinary, c.args("--server-timeout", "2s")...)
	checkRefusal(t, "client", code, out, []string{n.address})
	if attempts := strings.Count(out, "trying again"); attempts < 2 {
		t.Errorf("tried again %d times in %v, want more\n%s", attempts, time.Since(begun), out)
	}
}

func TestPeerPortInUse(t *testing.T) {
	t.Parallel()
	n := newNetwork(t, rules{1, 1, 2, 2})
	n.startServer()
	tcp := listen(t)
	udp, err := net.ListenPacket("udp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = udp.Close() })
	for _, used := range []net.Addr{tcp.Addr(), udp.LocalAddr()} {
		t.Run(used.Network(), func(t *testing.T) {
			_, port, _ := net.SplitHostPort(used.String())
			c := n.newClient(used.Network())
			refused(t, n.data, []string{used.Network() + "/" + port, "--bind-p2p-port"}, clientBinary, c.args("--bind-p2p-port", port)...)
		})
	}
}

// listen occupies a TCP port during the test.
func listen(t *testing.T) net.Listener {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = listener.Close() })
	return listener
}
