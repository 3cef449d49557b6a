package main

import (
	"context"
	"io"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strconv"
	"sync/atomic"

	"github.com/psyche-go/psyche/base/child"
	"github.com/psyche-go/psyche/files/hub/hubtest"
	"github.com/psyche-go/psyche/files/objstore/gcs/fakegcs"
	"github.com/psyche-go/psyche/proof/testbed"
)

const (
	common    = 100 // tokens in the data
	sequences = 4096

	modelConfig = `{
  "architectures": ["LlamaForCausalLM"], "model_type": "llama", "vocab_size": 256,
  "hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 1, "num_attention_heads": 2,
  "num_key_value_heads": 2, "head_dim": 16, "hidden_act": "silu", "max_position_embeddings": 256,
  "rms_norm_eps": 1e-05, "rope_theta": 10000.0, "tie_word_embeddings": false, "initializer_range": 0.02
}`

	modelBucket, uploadBucket = "models", "uploads"
	baseRepo, uploadRepo      = "org/base", "org/out"
	hubToken                  = "hf_write"
)

// world is the environment of a row's processes.
type world struct {
	model      string // folder
	data       testbed.Source
	checkpoint map[string]any
	env        []string
	device     []string // environment of the members with devices; nil: there are none
	tmp        string   // temporary folder of the processes
	dataPort   string   // of the data server, if there is one
	dataAddr   string   // its address
	hub        *hubtest.Server
	buckets    *fakegcs.Server
	reports    atomic.Int64 // received by the collector of metrics
	collector  string       // its address
	ends       []func()
}

func (w *world) end() {
	for _, end := range w.ends {
		end()
	}
}

// prepareModel creates the starting model and the tokens of all rows, once.
func (s setup) prepareModel(ctx context.Context) (model, tokens string, err error) {
	model, tokens = filepath.Join(s.out, "model"), filepath.Join(s.out, "tokens")
	if _, err := os.Stat(filepath.Join(model, "model.safetensors")); err == nil {
		return model, tokens, nil
	}
	if err := testbed.WriteTokens(tokens, text()); err != nil {
		return "", "", err
	}
	model, err = testbed.InitModel(ctx, s.client(), s.out, []byte(modelConfig))
	return model, tokens, err
}

// text returns tokens. Each token follows from the previous one except for some noise, so that
// there is something to learn.
func text() (tokens []uint16) {
	random := rand.New(rand.NewPCG(1, 2))
	at := 0
	for range sequences*seqLen + 1 {
		if at = (at*7 + 13) % common; random.IntN(4) == 0 {
			at = random.IntN(common)
		}
		tokens = append(tokens, uint16(at))
	}
	return tokens
}

// makeWorld creates the environment of a row's processes in a folder.
func (s setup) makeWorld(ctx context.Context, r row, dir string) (w *world, err error) {
	w = &world{tmp: filepath.Join(dir, "tmp")}
	model, tokens, err := s.prepareModel(ctx)
	if err != nil {
		return w, err
	}
	w.model = model
	if err := os.MkdirAll(w.tmp, 0o755); err != nil {
		return w, err
	}
	w.serve()
	w.env = []string{
		"TMPDIR=" + w.tmp, "HOME=" + filepath.Join(dir, "home"), "XDG_CONFIG_HOME=", "STORAGE_EMULATOR_HOST=" + w.buckets.Host,
		"HF_ENDPOINT=" + w.hub.URL, "HF_TOKEN=" + hubToken, "HF_HOME=" + filepath.Join(dir, "huggingface"), "HF_HUB_CACHE=", "HF_HUB_OFFLINE=",
		"WANDB_MODE=offline", "WANDB_DIR=" + filepath.Join(dir, "wandb"), "WANDB_API_KEY=", "DUMMY_TRAINING_DELAY_SECS=" + r.delay(),
	}
	if s.shim != "" {
		w.env = append(w.env, "PSYCHE_TORCH_SHIM="+s.shim)
	}
	if r.has("device", "strict") && !r.has("results", "dummy") {
		if w.device, err = testbed.StrictDevice(ctx, s.root, s.shim, filepath.Join(dir, "device")); err != nil {
			return w, err
		}
	}
	files, err := folder(model)
	if err != nil {
		return w, err
	}
	w.hub.Put(baseRepo, files)
	for name, content := range files {
		w.buckets.Set(modelBucket, "base/"+name, content)
	}
	w.beginFrom(r)
	return w, w.readFrom(r, dir, tokens)
}

// serve starts the Hub, the buckets and the collector.
func (w *world) serve() {
	w.hub = hubtest.New()
	w.hub.Tokens[hubToken] = true
	buckets, end := fakegcs.Start()
	w.buckets = buckets
	collector := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		if n, err := io.Copy(io.Discard, r.Body); err == nil && n > 0 {
			w.reports.Add(1)
		}
	}))
	w.collector = collector.URL
	w.ends = append(w.ends, w.hub.Close, end, collector.Close)
}

// beginFrom sets the location of the run's starting model.
func (w *world) beginFrom(r row) {
	repo := map[string]any{"repo_id": baseRepo}
	switch r.levels["checkpoint"] {
	case "hub":
		w.checkpoint = map[string]any{"Hub": repo}
	case "p2p":
		w.checkpoint = map[string]any{"P2P": repo}
	case "bucket":
		w.checkpoint = map[string]any{"Gcs": map[string]any{"bucket": modelBucket, "prefix": "base"}}
	default:
		w.checkpoint = map[string]any{"Local": map[string]any{"path": w.model}}
		if r.has("results", "dummy") {
			w.checkpoint = map[string]any{"Dummy": map[string]any{"repo_id": ""}}
		}
	}
}

// readFrom sets the location of the run's data. The address of a data server follows later.
func (w *world) readFrom(r row, dir, tokens string) (err error) {
	if r.has("data", "server") {
		port, err := child.FreePort()
		if err != nil {
			return err
		}
		w.dataPort = strconv.Itoa(port)
	}
	w.data, err = testbed.Serve(r.levels["data"], tokens, dir, seqLen, "", w.buckets)
	w.ends = append(w.ends, w.data.End)
	return err
}

// delay returns the training time of the dummy model, in seconds.
func (r row) delay() string {
	if r.has("rounds", "long") {
		return "0.6"
	}
	return "0.05"
}

// folder returns the files of a folder by name.
func folder(dir string) (map[string][]byte, error) {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return nil, err
	}
	files := map[string][]byte{}
	for _, entry := range entries {
		if entry.IsDir() {
			continue
		}
		if files[entry.Name()], err = os.ReadFile(filepath.Join(dir, entry.Name())); err != nil {
			return nil, err
		}
	}
	return files, nil
}
