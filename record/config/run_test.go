package config

import (
	stdcmp "cmp"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/psyche-go/psyche/base/golden"
	"github.com/psyche-go/psyche/core/coordinator"
)

// samples returns the state.toml files that must load.
func samples(t testing.TB) []string {
	t.Helper()
	var files []string
	for _, pattern := range []string{"testdata/*.toml", "../../configs/*/state.toml", "../../proof/bench/*.toml"} {
		found, err := filepath.Glob(pattern)
		if err != nil || len(found) == 0 {
			t.Fatalf("no samples match %s (%v)", pattern, err)
		}
		files = append(files, found...)
	}
	return files
}

func TestSamplesLoad(t *testing.T) {
	for _, file := range samples(t) {
		t.Run(file, func(t *testing.T) {
			run, err := LoadState(file)
			if err != nil {
				t.Fatal(err)
			}
			encoded, err := EncodeModel(run.Model)
			if err != nil {
				t.Fatal(err)
			}
			decoded, err := DecodeModel(encoded)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(run.Model, decoded); diff != "" {
				t.Errorf("definition changed on its way through the codec (-want +got):\n%s", diff)
			}
			if filepath.Dir(file) == "testdata" {
				golden.Compare(t, filepath.Join("definition", strings.TrimSuffix(filepath.Base(file), ".toml")+".json"), encoded)
			}
			run.RunID = stdcmp.Or(run.RunID, "named-by-flag")
			state, err := run.CoordinatorState(coordinator.ClientID{1})
			if err != nil {
				t.Fatal(err)
			}
			if string(state.Model.Definition) != string(encoded) || state.Config != run.Config {
				t.Errorf("the coordinator starts with %+v", state)
			}
		})
	}
}

// TestByteOrderMark checks that a file may begin with a byte order mark, because Windows editors
// write one.
func TestByteOrderMark(t *testing.T) {
	text, err := os.ReadFile(samples(t)[0])
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(t.TempDir(), "state.toml")
	if err := os.WriteFile(path, append([]byte("\ufeff"), text...), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := LoadState(path); err != nil {
		t.Error(err)
	}
	for _, start := range []string{"\xff\xfe[\x00", "\xfe\xff\x00[", "[\x00m\x00o\x00", "\xff\xfe\x00\x00[\x00\x00\x00"} { // PowerShell writes the first of these
		if err := os.WriteFile(path, []byte(start), 0o600); err != nil {
			t.Fatal(err)
		}
		_, err := LoadState(path)
		golden.Message(t, start, err)
	}
}

// TestProbationIsOnWhereAFileIsSilent checks that probation is on by default, also for files that
// are older than its key.
func TestProbationIsOnWhereAFileIsSilent(t *testing.T) {
	run, err := LoadState("testdata/dummy.toml")
	if err != nil || run.Config.ProbationSteps != defaultProbationSteps || defaultProbationSteps == 0 {
		t.Errorf("%d rounds of probation, %v; want %d", run.Config.ProbationSteps, err, defaultProbationSteps)
	}
}

func TestLoadStateReadsEveryValue(t *testing.T) {
	run, err := LoadState("testdata/urls.toml")
	if err != nil {
		t.Fatal(err)
	}
	address := "https://data.example/tiny.ds"
	var seed [32]byte
	for i := range seed {
		seed[i] = byte(i + 1)
	}
	want := Run{
		RunID: "urls",
		Config: coordinator.Config{
			WarmupTime: 30_000, CooldownTime: 30_000, EpochTime: 60_000, MaxRoundTrainTime: 15_000, RoundWitnessTime: 1000,
			WaitingForMembersExtraTime: defaultExtraTime,
			GlobalBatchSizeStart:       8, GlobalBatchSizeEnd: 8, TotalSteps: 25000, InitMinClients: 1, MinClients: 1, ProbationSteps: 12, EjectionEpochs: 1,
		},
		Model: Model{
			Architecture: HfLlama, DataType: Pretraining, MaxSeqLen: 64,
			DataLocations: []DataLocation{
				{HTTP: &HTTPData{Location: HTTPLocation{SingleURL: &address}, TokenSize: TwoBytes}},
				{HTTP: &HTTPData{
					Location:  HTTPLocation{NumberedFiles: &NumberedFiles{URLTemplate: "https://data.example/{}.ds", NLeftPadZeros: 3, NumFiles: 12}},
					TokenSize: FourBytes, Shuffle: Shuffle{Seed: &seed},
				}},
				{Local: &LocalData{Path: "tokens", TokenSize: FourBytes}},
			},
			Checkpoint: Checkpoint{Local: &LocalCheckpoint{Path: "model"}},
			LRSchedule: LRSchedule{Cosine: &CosineLR{BaseLR: 4e-4, WarmupSteps: 250, TotalSteps: 25000, FinalLR: 4e-5}},
			Optimizer: Optimizer{Distro: &Distro{
				ClipGradNorm: 1, CompressionDecay: 0.999, CompressionChunk: 64, CompressionTopK: 8, Quantize1Bit: true,
			}},
		},
	}
	if diff := cmp.Diff(want, run); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

// TestTimesMayHaveFractions checks that every multiple of 0.001 s is read as a whole number of
// milliseconds.
func TestTimesMayHaveFractions(t *testing.T) {
	text, err := os.ReadFile("testdata/urls.toml")
	if err != nil {
		t.Fatal(err)
	}
	good := string(text)
	if !strings.Contains(good, "round_witness_time = 1\n") {
		t.Fatal("the sample has a different round_witness_time")
	}
	read := func(value string) uint64 {
		t.Helper()
		run, err := ParseState("s.toml", []byte(strings.Replace(good, "round_witness_time = 1\n", "round_witness_time = "+value+"\n", 1)))
		if err != nil {
			t.Fatal(err)
		}
		return run.Config.RoundWitnessTime
	}
	for value, want := range map[string]uint64{
		"0.2": 200, "0.001": 1, "1.0": 1000, "1": 1000, "2e-1": 200, "999999999.999": 999_999_999_999, "1e9": coordinator.MaxTime, "0.1e1": 1000,
	} {
		if got := read(value); got != want {
			t.Errorf("%s was parsed as %d ms, want %d", value, got, want)
		}
	}
	for ms := uint64(1); ms <= 3000; ms += 7 {
		if got := read(fmt.Sprintf("%d.%03d", ms/1000, ms%1000)); got != ms {
			t.Errorf("%d ms are read as %d", ms, got)
		}
	}
}

func TestOptimizerExtrasAreRead(t *testing.T) {
	text, err := os.ReadFile("testdata/urls.toml")
	if err != nil {
		t.Fatal(err)
	}
	changed := strings.Replace(string(text), "quantize_1bit", "apply_lag = 2\nlookahead = true\nquantize_1bit", 1)
	run, err := ParseState("s.toml", []byte(changed))
	if err != nil {
		t.Fatal(err)
	}
	encoded, err := EncodeModel(run.Model)
	if err != nil {
		t.Fatal(err)
	}
	model, err := DecodeModel(encoded)
	if err != nil {
		t.Fatal(err)
	}
	if d := model.Optimizer.Distro; d.Lag() != 2 || !d.Lookahead {
		t.Errorf("lag %d, lookahead %t, want 2, true", d.Lag(), d.Lookahead)
	}
	if lag := (Distro{}).Lag(); lag != 1 {
		t.Errorf("lag by default is %d, want 1", lag)
	}
}

func TestSavedProgressIsRead(t *testing.T) {
	run, err := LoadState("testdata/saved.toml")
	if err != nil {
		t.Fatal(err)
	}
	if want := (coordinator.Progress{Epoch: 4, Step: 120, DataIndex: 960}); run.Progress != want {
		t.Errorf("got %+v, want %+v", run.Progress, want)
	}
}

func TestOlderFormsWarn(t *testing.T) {
	run, err := LoadState("testdata/model-extra-data.toml")
	if err != nil {
		t.Fatal(err)
	}
	if len(run.Warnings) != 1 || !strings.Contains(run.Warnings[0], "round_apply_time") {
		t.Errorf("got warnings %q", run.Warnings)
	}
}

// TestMistakesAreNamed changes one value of a valid file. It checks that the error names the place
// and a remedy.
func TestMistakesAreNamed(t *testing.T) {
	text, err := os.ReadFile("testdata/book.toml")
	if err != nil {
		t.Fatal(err)
	}
	good := string(text)
	tests := []struct{ name, from, to string }{
		{"unknown key", "warmup_time = 30", "warmup_tim = 30"},
		{"unknown nested key", "final_lr = 4.0e-5", "final_lr = 4.0e-5\nfinallr = 1"},
		{"unknown top level key", "[config]", "runid = \"x\"\n[config]"},
		{"missing table", "[config]", "[config2]"},
		{"missing key", "max_seq_len = 2048\n", ""},
		{"wrong type", "warmup_time = 30", `warmup_time = "30"`},
		{"float for a whole number", "witness_nodes = 0", "witness_nodes = 0.5"},
		{"negative time", "warmup_time = 30", "warmup_time = -30"},
		{"negative part of a second", "warmup_time = 30", "warmup_time = -0.001"},
		{"time that is none", "warmup_time = 30", "warmup_time = nan"},
		{"endless time", "warmup_time = 30", "warmup_time = inf"},
		{"absurd time", "warmup_time = 30", "warmup_time = 1000000001"},
		{"largest number", "epoch_time = 60", "epoch_time = 9223372036854775807"},
		{"fine time", "round_witness_time = 1", "round_witness_time = 0.0005"},
		{"fine part of a long time", "cooldown_time = 30", "cooldown_time = 30.0001"},
		{"no time", "round_witness_time = 1", "round_witness_time = 0.0"},
		{"negative", "total_steps = 25000\n\n[model", "total_steps = -30\n\n[model"},
		{"too large", "witness_nodes = 0", "witness_nodes = 70000"},
		{"not a number", "base_lr = 4.0e-4", "base_lr = nan"},
		{"negative rate", "base_lr = 4.0e-4", "base_lr = -4.0e-4"},
		{"enum", `"HfLlama"`, `"Llama"`},
		{"two variants", "[model.LLM.optimizer.Distro]", "[model.LLM.optimizer.AdamW]\n[model.LLM.optimizer.Distro]"},
		{"misspelt variant", "lr_schedule.Cosine", "lr_schedule.Cosin"},
		{"variant without settings", "[model.LLM.checkpoint.Hub]\nrepo_id = \"emozilla/llama2-20m-init\"", "[model.LLM.checkpoint]\nHub = 1"},
		{"ephemeral", "[model.LLM.checkpoint.Hub]\nrepo_id = \"emozilla/llama2-20m-init\"\n", ""},
		{"empty repository", "emozilla/llama2-20m-init", ""},
		{"long repository", "emozilla/llama2-20m-init", strings.Repeat("x", 65)},
		{"no epoch end", "epoch_time = 60\n", ""},
		{"two epoch ends", "epoch_time = 60", "epoch_time = 60\nrounds_per_epoch = 10"},
		{"clients", "init_min_clients = 1", "init_min_clients = 0"},
		{"batch", "global_batch_size_end = 8", "global_batch_size_end = 7"},
		{"zero", "total_steps = 25000\n\n[model", "total_steps = 0\n\n[model"},
		{"schedule", "warmup_steps = 250", "warmup_steps = 25000"},
		{"top k", "compression_topk = 8", "compression_topk = 0"},
		{"no lag", "quantize_1bit", "apply_lag = 0\nquantize_1bit"},
		{"long lag", "quantize_1bit", "apply_lag = 3\nquantize_1bit"},
		{"lookahead", "quantize_1bit", "lookahead = 1\nquantize_1bit"},
		{"decay", "compression_decay = 0.999", "compression_decay = 1.5"},
		{"both locations", "max_seq_len = 2048", "max_seq_len = 2048\ndata_locations = []"},
		{"sequence length", "max_seq_len = 2048", "max_seq_len = 0"},
		{"cold start", "max_seq_len = 2048", "max_seq_len = 2048\ncold_start_warmup_steps = 3"},
		{"not TOML", "[config]", "[config"},
		{"key twice", "warmup_time = 30", "warmup_time = 30\nwarmup_time = 31"},
		{"run id too long", "[config]", "run_id = \"" + strings.Repeat("r", 65) + "\"\n[config]"},
		{"long name", "[config]", "name = \"" + strings.Repeat("n", 65) + "\"\n[config]"},
		{"name that turns", "[config]", "name = \"a\\u202eb\"\n[config]"},
		{"description of lines", "[config]", "description = \"a\\nb\"\n[config]"},
		{"long description", "[config]", "description = \"" + strings.Repeat("n", 281) + "\"\n[config]"},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			if !strings.Contains(good, test.from) {
				t.Fatalf("the sample has no %q", test.from)
			}
			_, err := ParseState("s.toml", []byte(strings.Replace(good, test.from, test.to, 1)))
			golden.Message(t, "error", err)
		})
	}
}

// TestPublishedConfigurations parses a file with the keys and numbers of each configuration of the
// original Psyche.
func TestPublishedConfigurations(t *testing.T) {
	files, err := filepath.Glob("testdata/published/*.toml")
	if err != nil || len(files) != 11 {
		t.Fatalf("%d files, %v", len(files), err)
	}
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		run, err := ParseState(file, text)
		if err != nil {
			t.Error(err)
			continue
		}
		if run.RunID == "" {
			run.RunID = "run"
		}
		if _, err := run.CoordinatorState(coordinator.ClientID{1}); err != nil {
			t.Errorf("%s: %v", file, err)
		}
	}
}

// TestAuditsNeedABound checks that a run with audits refuses steps without clipping, and that a run
// without audits accepts them.
func TestAuditsNeedABound(t *testing.T) {
	text, err := os.ReadFile("testdata/book.toml")
	if err != nil {
		t.Fatal(err)
	}
	for _, test := range []struct {
		percent, clip string
		norm          float64
		refused       bool
	}{
		{"0", "clip_grad_norm = 0.0", 0, false}, {"0", "clip_grad_norm = 1.0", 1, false}, {"0", "", 0, false},
		{"10", "clip_grad_norm = 2.0", 2, false}, {"10", "", 1, false}, {"10", "clip_grad_norm = 0.0", 0, true},
	} {
		changed := strings.Replace(string(text), "verification_percent = 0", "verification_percent = "+test.percent, 1)
		changed = strings.Replace(changed, "clip_grad_norm = 1.0", test.clip, 1)
		run, err := ParseState("s.toml", []byte(changed))
		if err == nil && run.Model.Optimizer.Distro.ClipGradNorm != test.norm {
			t.Errorf("%+v: clip_grad_norm is %v", test, run.Model.Optimizer.Distro.ClipGradNorm)
		}
		warned := slices.ContainsFunc(run.Warnings, func(w string) bool { return strings.Contains(w, "clip_grad_norm") })
		if want := test.percent == "10" && test.clip == ""; warned != want {
			t.Errorf("%+v: warnings %q", test, run.Warnings)
		}
		if test.refused {
			golden.Message(t, "audits without a bound", err)
		} else if err != nil {
			t.Errorf("%+v: %v", test, err)
		}
	}
}

func TestEphemeralIsRefused(t *testing.T) {
	text, err := os.ReadFile("testdata/dummy.toml")
	if err != nil {
		t.Fatal(err)
	}
	changed := strings.Replace(string(text), "[model.LLM.checkpoint.Dummy]\nrepo_id = \"\"\n", "", 1)
	changed = strings.Replace(changed, "max_seq_len = 512", "max_seq_len = 512\ncheckpoint = \"Ephemeral\"", 1)
	_, err = ParseState("s.toml", []byte(changed))
	golden.Message(t, "error", err)
}

func TestDataServer(t *testing.T) {
	seed := "[" + strings.TrimSuffix(strings.Repeat("7, ", 32), ", ") + "]"
	good := "dir = \"../data\"\ntoken_size = \"TwoBytes\"\nseq_len = 2048\nshuffle_seed = " + seed + "\n"
	got, err := parseDataServer("runs/first/data.toml", []byte(good))
	if err != nil {
		t.Fatal(err)
	}
	if len(got.Locations) != 1 || got.Locations[0].Local == nil || got.SeqLen != 2048 {
		t.Fatalf("got %+v; want len(got.Locations) == 1 and got.Locations[0].Local != nil and got.SeqLen == 2048", got)
	}
	if at := got.Locations[0].Local; at.Path != filepath.FromSlash("runs/data") || at.TokenSize != TwoBytes || at.Shuffle.Seed[31] != 7 {
		t.Errorf("got %+v; want at.Path == filepath.FromSlash(\"runs/data\") and at.TokenSize == TwoBytes and at.Shuffle.Seed[31] == 7", at)
	}
	for name, change := range map[string][2]string{
		"short seed":  {seed, "[1, 2]"},
		"large seed":  {"7, 7]", "7, 300]"},
		"no folder":   {"dir = \"../data\"\n", ""},
		"unknown key": {"seq_len", "seqlen"},
		"token size":  {"TwoBytes", "ThreeBytes"},
	} {
		_, err := parseDataServer("d.toml", []byte(strings.Replace(good, change[0], change[1], 1)))
		golden.Message(t, name, err)
	}
}

// TestDataServerOfOtherKinds checks that a data server accepts the data locations of a state.toml.
func TestDataServerOfOtherKinds(t *testing.T) {
	got, err := parseDataServer("runs/data.toml", []byte(`seq_len = 8
[[data_locations]]
WeightedHttp = "https://example.org/mix.json"
[[data_locations]]
Local = "here"
`))
	if err != nil {
		t.Fatal(err)
	}
	if len(got.Locations) != 2 || got.Locations[0].WeightedHTTP == nil || got.Locations[1].Local.Path != filepath.FromSlash("runs/here") {
		t.Errorf("got %+v; want len(got.Locations) == 2 and got.Locations[0].WeightedHTTP != nil and got.Locations[1].Local.Path == filepath.FromSlash(\"runs/here\")", got)
	}
	for name, text := range map[string]string{
		"another data server": "seq_len = 8\ndata_location = { Server = \"host:1\" }",
		"an unknown key":      "seq_len = 8\ndir = \"x\"\ndata_location = { Local = \"here\" }",
		"no sequence length":  "data_location = { Local = \"here\" }",
		"both keys":           "seq_len = 8\ndata_location = \"Dummy\"\ndata_locations = [\"Dummy\"]\n",
	} {
		_, err := parseDataServer("d.toml", []byte(text))
		golden.Message(t, name, err)
	}
}

// TestServerData parses both forms of a data server's location.
func TestServerData(t *testing.T) {
	key := "4vJ9JU1bJJE96FWSJKvHsmmFADCg4gpZQff4P3bkLKi" // 32 bytes with the value 8
	parse := func(location string) (*ServerData, error) {
		got, err := parseLocation(t, location)
		return got.Server, err
	}
	if got, err := parse(`{ Server = "data.example:1234" }`); err != nil || *got != (ServerData{Addr: "data.example:1234"}) {
		t.Errorf("got %+v, %v; want nil error and *got == (ServerData{Addr: \"data.example:1234\"})", got, err)
	}
	if got, err := parse(`{ Server = { addr = "[::1]:1", key = "` + key + `" } }`); err != nil || *got != (ServerData{Addr: "[::1]:1", Key: key}) {
		t.Errorf("got %+v, %v; want nil error and *got == (ServerData{Addr: \"[::1]:1\", Key: key})", got, err)
	}
	for name, location := range map[string]string{
		"no value":          `"Server"`,
		"no port":           `{ Server = "nowhere" }`,
		"no key":            `{ Server = { addr = "h:1" } }`,
		"a key but no port": `{ Server = { addr = "h", key = "` + key + `" } }`,
		"a short key":       `{ Server = { addr = "h:1", key = "abc" } }`,
		"an unknown key":    `{ Server = { addr = "h:1", key = "` + key + `", x = 1 } }`,
	} {
		_, err := parse(location)
		golden.Message(t, name, err)
	}
}

// parseLocation reads one location.
func parseLocation(t *testing.T, text string) (DataLocation, error) {
	t.Helper()
	root, err := parse("s.toml", []byte("data_location = "+text))
	if err != nil {
		t.Fatal(err)
	}
	locations := readDataLocations(root)
	return locations[0], root.err()
}

// TestCommitEvery checks that the default is a twentieth of an epoch, and that the file can set the
// value.
func TestCommitEvery(t *testing.T) {
	for _, test := range []struct {
		definition string
		config     coordinator.Config
		want       uint32
	}{
		{"", coordinator.Config{RoundsPerEpoch: 100}, 5},
		{"{}", coordinator.Config{RoundsPerEpoch: 3}, 1},
		{"", coordinator.Config{EpochTime: 3_600_000, MaxRoundTrainTime: 30_000}, 6},
		{`{"CommitEveryRounds":7}`, coordinator.Config{RoundsPerEpoch: 100}, 7},
	} {
		if got := CommitEvery([]byte(test.definition), test.config); got != test.want {
			t.Errorf("%q, %d rounds: %d, want %d", test.definition, test.config.RoundsPerEpoch, got, test.want)
		}
	}
	text, err := os.ReadFile(samples(t)[0])
	if err != nil {
		t.Fatal(err)
	}
	set := func(value string) (Run, error) {
		return ParseState("state.toml", []byte(strings.Replace(string(text), "[config]\n", "[config]\ncommit_every_rounds = "+value+"\n", 1)))
	}
	if run, err := set("4"); err != nil || run.Model.CommitEveryRounds != 4 {
		t.Errorf("read %d, %v", run.Model.CommitEveryRounds, err)
	}
	if _, err := set("0"); err == nil || !strings.Contains(err.Error(), "commit_every_rounds") {
		t.Errorf("0 was accepted: %v", err)
	}
}
