package coordinator

import (
	"errors"
	"math/big"
	"strings"
	"testing"

	"pgregory.net/rapid"
)

func TestValidateNamesTheBrokenKey(t *testing.T) {
	if err := testConfig().Validate(); err != nil {
		t.Fatal(err)
	}
	tests := []struct {
		name  string
		alter func(*Config)
		key   string
	}{
		{"no end of an epoch", func(c *Config) { c.RoundsPerEpoch = 0 }, "rounds_per_epoch"},
		{"two ends of an epoch", func(c *Config) { c.EpochTime = 900 * second }, "epoch_time"},
		{"warmup longer than the epoch", func(c *Config) { c.RoundsPerEpoch, c.EpochTime, c.WarmupTime = 0, 100*second, 100*second }, "warmup_time"},
		{"no time to train", func(c *Config) { c.MaxRoundTrainTime = 0 }, "max_round_train_time"},
		{"round longer than the epoch", func(c *Config) { c.RoundsPerEpoch, c.EpochTime, c.MaxRoundTrainTime = 0, 100*second, 100*second }, "max_round_train_time"},
		{"no time to witness", func(c *Config) { c.RoundWitnessTime = 0 }, "round_witness_time"},
		{"no clients", func(c *Config) { c.MinClients = 0 }, "min_clients"},
		{"begins with too few", func(c *Config) { c.InitMinClients = 1 }, "init_min_clients"},
		{"begins with too many", func(c *Config) { c.InitMinClients = 257 }, "init_min_clients"},
		{"no batch", func(c *Config) { c.GlobalBatchSizeStart = 0 }, "global_batch_size_start"},
		{"no batch at the end", func(c *Config) { c.GlobalBatchSizeEnd = 0 }, "global_batch_size_end"},
		{"batch shrinks", func(c *Config) { c.GlobalBatchSizeEnd = 7 }, "global_batch_size_end"},
		{"no steps", func(c *Config) { c.TotalSteps = 0 }, "total_steps"},
		{"steps do not fit", func(c *Config) { c.TotalSteps = 1<<32 - 1 }, "total_steps"},
		{"more witnesses than clients", func(c *Config) { c.WitnessNodes = 3 }, "witness_nodes"},
		{"too many witnesses", func(c *Config) { c.WitnessNodes, c.MinClients, c.InitMinClients = 33, 40, 40 }, "witness_nodes"},
		{"no cooldown", func(c *Config) { c.CooldownTime = 0 }, "cooldown_time"},
		{"no extra time", func(c *Config) { c.WaitingForMembersExtraTime = 0 }, "waiting_for_members_extra_time"},
		{"an endless warmup", func(c *Config) { c.WarmupTime = MaxTime + 1 }, "warmup_time"},
		{"an endless cooldown", func(c *Config) { c.CooldownTime = 1<<64 - 1 }, "cooldown_time"},
		{"an endless epoch", func(c *Config) { c.RoundsPerEpoch, c.EpochTime = 0, MaxTime+1 }, "epoch_time"},
		{"an endless round", func(c *Config) { c.MaxRoundTrainTime = MaxTime + 1 }, "max_round_train_time"},
		{"endless witnessing", func(c *Config) { c.RoundWitnessTime = MaxTime + 1 }, "round_witness_time"},
		{"endless extra time", func(c *Config) { c.WaitingForMembersExtraTime = MaxTime + 1 }, "waiting_for_members_extra_time"},
		{"more than all verify", func(c *Config) { c.VerificationPercent = 101 }, "verification_percent"},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			config := testConfig()
			test.alter(&config)
			_, err := New("walk", host, config, testModel())
			checkConfigError(t, err, test.key)
		})
	}
}

func checkConfigError(t *testing.T, err error, key string) {
	t.Helper()
	var problem *ConfigError
	if !errors.As(err, &problem) || !errors.Is(err, ErrInvalidConfig) || problem.Key != key {
		t.Fatalf("got %v, want an error about %s", err, key)
	}
	if !strings.HasPrefix(err.Error(), key+" ") {
		t.Errorf("%q does not begin with the key", err)
	}
}

func TestNewNamesTheBrokenModelKey(t *testing.T) {
	tests := []struct {
		name  string
		runID string
		alter func(*Model)
		key   string
	}{
		{"no run id", "", func(*Model) {}, "run_id"},
		{"long run id", strings.Repeat("r", 65), func(*Model) {}, "run_id"},
		{"control character", "run\n", func(*Model) {}, "run_id"},
		{"no sequence length", "walk", func(m *Model) { m.MaxSeqLen = 0 }, "max_seq_len"},
		{"warmup longer than an epoch", "walk", func(m *Model) { m.ColdStartWarmupSteps = 3 }, "cold_start_warmup_steps"},
		{"large definition", "walk", func(m *Model) { m.Definition = make([]byte, MaxDefinitionSize+1) }, "model"},
		{"no kind", "walk", func(m *Model) { m.Checkpoint.Kind = 0 }, "checkpoint"},
		{"unknown kind", "walk", func(m *Model) { m.Checkpoint.Kind = 7 }, "checkpoint"},
		{"no repository", "walk", func(m *Model) { m.Checkpoint.Repo = "" }, "checkpoint"},
		{"long repository", "walk", func(m *Model) { m.Checkpoint.Repo = strings.Repeat("r", MaxRepoLength+1) }, "checkpoint"},
		{"digest without peers", "walk", func(m *Model) { m.Checkpoint.Digest[0] = 1 }, "checkpoint"},
		{"origin of an origin", "walk", func(m *Model) { m.Checkpoint.Origin = CheckpointHub }, "checkpoint"},
		{"from peers", "walk", func(m *Model) { m.Checkpoint.Kind, m.Checkpoint.Origin = CheckpointP2P, CheckpointHub }, "checkpoint"},
		{"from peers, wrong origin", "walk", func(m *Model) { m.Checkpoint.Kind, m.Checkpoint.Origin = CheckpointP2P, CheckpointGcs }, "checkpoint"},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			model := testModel()
			test.alter(&model)
			_, err := New(test.runID, host, testConfig(), model)
			checkConfigError(t, err, test.key)
		})
	}
}

func TestColdStartMustFitIntoEpochTime(t *testing.T) {
	config, model := testConfig(), testModel()
	config.RoundsPerEpoch, config.EpochTime = 0, 400*second // (400 − 30) / 60 = 6 rounds
	model.ColdStartWarmupSteps = 6
	if _, err := New("walk", host, config, model); err != nil {
		t.Error(err)
	}
	model.ColdStartWarmupSteps = 7
	_, err := New("walk", host, config, model)
	checkConfigError(t, err, "cold_start_warmup_steps")
}

// TestBatchSizeReference compares batch sizes with numbers from the ramp of a published run.
func TestBatchSizeReference(t *testing.T) {
	c := Config{GlobalBatchSizeStart: 12288, GlobalBatchSizeEnd: 32768, GlobalBatchSizeWarmupTokens: 549755813888}
	for dataIndex, want := range map[uint64]uint32{
		0: 12288, 10_000_000: 13051, 100_000_000: 19917, 268435455: 32768, 268435456: 32768, 1<<64 - 1: 32768,
	} {
		if got := c.BatchSize(dataIndex, 2048); got != want {
			t.Errorf("batch size at %d: %d, want %d", dataIndex, got, want)
		}
	}
}

// TestBatchSizeIsExact compares batch sizes with rational arithmetic. They are rounded half up, lie
// between start and end, and never decrease.
func TestBatchSizeIsExact(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		start := rapid.Uint32Range(1, 1<<32-1).Draw(t, "start")
		c := Config{
			GlobalBatchSizeStart:        start,
			GlobalBatchSizeEnd:          rapid.Uint32Range(start, 1<<32-1).Draw(t, "end"),
			GlobalBatchSizeWarmupTokens: rapid.Uint64().Draw(t, "warmup"),
		}
		dataIndex := rapid.Uint64().Draw(t, "data index")
		seqLen := rapid.Uint32Range(1, 1<<20).Draw(t, "sequence length")
		got := c.BatchSize(dataIndex, seqLen)
		tokens := new(big.Int).Mul(new(big.Int).SetUint64(dataIndex), big.NewInt(int64(seqLen)))
		warmup := new(big.Int).SetUint64(c.GlobalBatchSizeWarmupTokens)
		want := big.NewInt(int64(c.GlobalBatchSizeEnd))
		if tokens.Cmp(warmup) < 0 {
			// ⌊(2·grow·tokens + warmup) / (2·warmup)⌋
			sum := new(big.Int).Mul(big.NewInt(2*int64(c.GlobalBatchSizeEnd-start)), tokens)
			sum.Add(sum, warmup)
			sum.Div(sum, new(big.Int).Lsh(warmup, 1))
			want = sum.Add(sum, big.NewInt(int64(start)))
		}
		if want.Cmp(big.NewInt(int64(got))) != 0 {
			t.Fatalf("got %d, want %v", got, want)
		}
		if next := c.BatchSize(dataIndex+min(1, 1<<64-1-dataIndex), seqLen); next < got {
			t.Fatalf("smaller later: %d, then %d", got, next)
		}
	})
}

func TestCodeTexts(t *testing.T) {
	seen := map[string]bool{}
	for c := Code(1); c.Valid(); c++ {
		if seen[c.Error()] || c.Error() == "" {
			t.Errorf("code %d has no text: %q", c, c.Error())
		}
		seen[c.Error()] = true
	}
	if len(seen) != len(codeTexts)-1 {
		t.Errorf("%d codes, %d texts", len(seen), len(codeTexts)-1)
	}
	for _, text := range []string{Code(0).Error(), Code(200).Error(), RunState(9).String(), ClientState(9).String(), CheckpointKind(0).String()} {
		if text == "" {
			t.Error("an unknown value prints nothing")
		}
	}
}
