package e2e

import (
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/psyche-go/psyche/face/tracker/otlp/otlptest"
	"github.com/psyche-go/psyche/record/event"
)

// dummyState is a run of the dummy model with a number of clients.
func dummyState(clients int) string {
	text := stateFile(rules{clients: clients, minClients: 1, roundsPerEpoch: 4, steps: 4}, "DATA", "MODEL")
	return dummyModel(strings.Replace(text, "run_id = \"e2e\"", "run_id = \"a-run-id-that-needs-more-than-thirty-two-bytes\"", 1))
}

// dummyModel puts the dummy model and its data into a state.toml.
func dummyModel(text string) string {
	before, after, _ := strings.Cut(text, "[model.LLM.data_location.Local]")
	_, after, _ = strings.Cut(after, "[model.LLM.lr_schedule")
	return before + "data_location = \"Dummy\"\n[model.LLM.checkpoint.Dummy]\nrepo_id = \"\"\n[model.LLM.lr_schedule" + after
}

// summaryOf reads the summary of a testnet from the only run folder below dir.
func summaryOf(t *testing.T, dir string) (run string, summary struct {
	Finished bool
	Rounds   int
	Clients  []struct{ Digest string }
}) {
	t.Helper()
	found, err := filepath.Glob(filepath.Join(dir, "*", "summary.json"))
	if err != nil || len(found) != 1 {
		t.Fatal(found, err)
	}
	text, err := os.ReadFile(found[0])
	if err == nil {
		err = json.Unmarshal(text, &summary)
	}
	if err != nil {
		t.Fatal(err)
	}
	return filepath.Dir(found[0]), summary
}

// TestDummyRun runs a client without libtorch, model and data. It examines the client's metrics,
// and the data that the client and the server send to a collector. The client's settings come from
// the environment.
func TestDummyRun(t *testing.T) {
	if clientBinary == "" {
		t.Skip(noTorch)
	}
	dir := t.TempDir()
	writeFile(t, filepath.Join(dir, "config", "state.toml"), []byte(dummyState(1)))
	address := freeAddress(t)
	_, port, _ := net.SplitHostPort(address)
	command := exec.CommandContext(t.Context(), serverBinary, "testnet", "start", "--num-clients", "1", "--config-path", filepath.Join(dir, "config"),
		"--run-dir", filepath.Join(dir, "runs"), "--tui", "false", "--timeout", "2m")
	command.Env = append(os.Environ(), "PSYCHE_TORCH_SHIM="+filepath.Join(dir, "none.so"), "METRICS_LOCAL_PORT="+port, "DUMMY_TRAINING_DELAY_SECS=1.5")
	collector := otlptest.Start(t)
	for _, kind := range []string{"metrics", "logs", "traces"} {
		name := strings.ToUpper(strings.ReplaceAll(kind, "traces", "tracing"))
		command.Env = append(command.Env, "OLTP_"+name+"_URL="+collector.URL+"/v1/"+kind)
	}
	out := make(chan string, 1)
	go func() {
		text, err := command.CombinedOutput()
		out <- fmt.Sprintf("%s%v", text, err)
	}()
	values := map[string]*float64{}
	for len(out) == 0 && values["train/loss"] == nil {
		if response, err := http.Get("http://" + address + "/"); err == nil {
			text, _ := io.ReadAll(response.Body)
			_ = response.Body.Close()
			_ = json.Unmarshal(text, &values) // missing metrics are detected below
		}
		time.Sleep(50 * time.Millisecond)
	}
	text := <-out
	for _, name := range []string{"train/loss", "train/global_token_batch_size", "coordinator/num_clients", "coordinator/round"} {
		if values[name] == nil {
			t.Errorf("no %s in %v", name, values)
		}
	}
	run, summary := summaryOf(t, filepath.Join(dir, "runs"))
	if !summary.Finished || summary.Rounds != 4 || !strings.HasSuffix(text, "<nil>") {
		t.Errorf("summary %+v\n%s", summary, text)
	}
	trained := 0
	for e, err := range event.Read(filepath.Join(run, "client-1", "events.jsonl")) {
		if err != nil {
			t.Fatal(err)
		}
		if body, ok := e.Body.(event.Trained); ok {
			if trained++; body.Seconds < 1.5 {
				t.Errorf("step %d was trained in %v s", body.Step, body.Seconds)
			}
		}
	}
	if trained != 4 {
		t.Errorf("%d steps trained", trained)
	}
	checkCollected(t, collector)
}

// checkCollected examines the data that a server and a client with four rounds sent.
func checkCollected(t *testing.T, collector *otlptest.Collector) {
	t.Helper()
	if f := collector.Metrics(); f["psyche_train_loss"] == 0 || f["psyche_coordinator_round"] == 0 || f["psyche_server_sent_bytes_total"] == 0 {
		t.Errorf("metrics %v", f)
	}
	rounds, spans := map[string]bool{}, map[string]int{}
	for _, span := range collector.Spans() {
		spans[span.Name]++
		if span.Name == "round" {
			rounds[span.ID] = true
		}
	}
	trained := 0
	for _, span := range collector.Spans() {
		if span.Name == "train" && rounds[span.Parent] && span.Seconds >= 1.5 {
			trained++
		}
	}
	if trained != 4 || len(rounds) != 8 || spans["commit"] == 0 || spans["apply"] != 4 {
		t.Errorf("%d trainings in rounds, spans %v", trained, spans)
	}
	var text strings.Builder
	for _, line := range collector.Lines() {
		text.WriteString(line.Text + "\n")
	}
	for _, want := range []string{"server is listening", "the run is finished"} {
		if !strings.Contains(text.String(), want) {
			t.Errorf("no %q in the lines\n%s", want, text.String())
		}
	}
}

// TestSampleCall runs the sample invocation of the original's documentation on an equivalent
// folder: a model of the Hub, and data that the testnet's server serves.
func TestSampleCall(t *testing.T) {
	needClient(t)
	s := newHub(t)
	dir := t.TempDir()
	n := newNetwork(t, rules{clients: 2, minClients: 2, roundsPerEpoch: 2, steps: 4})
	must(t, clientBinary, "upload", n.model, "owner/tiny-init")
	n.beginFrom("owner/tiny-init")
	text, err := os.ReadFile(n.state)
	if err != nil {
		t.Fatal(err)
	}
	before, rest, _ := strings.Cut(string(text), "[model.LLM.data_location.Local]")
	_, after, _ := strings.Cut(rest, "[model.LLM.checkpoint")
	served := fmt.Sprintf("[model.LLM.data_location]\nServer = %q\n[model.LLM.checkpoint", freeAddress(t))
	config := filepath.Join(dir, "config", "sample")
	writeFile(t, filepath.Join(config, "state.toml"), []byte(before+served+after))
	seed := "[" + strings.TrimSuffix(strings.Repeat("7, ", 32), ", ") + "]"
	writeFile(t, filepath.Join(config, "data.toml"),
		fmt.Appendf(nil, "dir = \"../../data/sample\"\ntoken_size = \"TwoBytes\"\nseq_len = %d\nshuffle_seed = %s\n", seqLen, seed))
	if err := os.MkdirAll(filepath.Join(dir, "data"), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(n.data, filepath.Join(dir, "data", "sample")); err != nil {
		t.Fatal(err)
	}
	program := filepath.Join(dir, "psyche-centralized-local-testnet")
	if err := os.Symlink(serverBinary, program); err != nil {
		t.Fatal(err)
	}
	command := exec.CommandContext(t.Context(), program, "start", "--num-clients", "3", "--config-path", config,
		"--write-distro-data", filepath.Join(dir, "distro"), "--tui", "false", "--first-client-checkpoint", "owner/out", "--hf-token", "hf_write",
		"--random-kill-num", "1", "--allowed-to-kill", "2,3", "--optim-stats", "2", "--events-dir", filepath.Join(dir, "events"),
		"--run-dir", filepath.Join(dir, "runs"), "--timeout", "3m", "--log", "warn,psyche=debug", "--write-log")
	command.Env = append(clientEnv(), "HF_TOKEN=")
	if out, err := command.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	_, summary := summaryOf(t, filepath.Join(dir, "runs"))
	if !summary.Finished || len(summary.Clients) != 3 || summary.Clients[0].Digest == "" || summary.Clients[0].Digest != summary.Clients[2].Digest {
		t.Errorf("summary %+v", summary)
	}
	if len(s.Files("owner/out", "main")) == 0 {
		t.Error("the first client uploaded nothing")
	}
	for client := 1; client <= 3; client++ {
		name := fmt.Sprintf("client-%d", client)
		results, err := filepath.Glob(filepath.Join(dir, "distro", name, "step*.distro"))
		if err != nil || len(results) != 12 {
			t.Errorf("%s wrote %d results, %v", name, len(results), err)
		}
		stats := 0
		for e, err := range event.Read(filepath.Join(dir, "events", name, "events.jsonl")) {
			if err != nil {
				t.Fatal(err)
			}
			if body, ok := e.Body.(event.OptimizerStats); ok && len(body.Tensors) > 0 && body.Tensors[0].GradientEnergy > 0 {
				stats++
			}
		}
		if stats != 2 {
			t.Errorf("%s wrote metrics of its tensors %d times", name, stats)
		}
	}
}
