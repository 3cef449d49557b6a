package coordinator

import "math/bits"

// Validate reports the first rule that the configuration breaks, as a *ConfigError.
func (c Config) Validate() error {
	if broken := c.Broken(); len(broken) > 0 {
		return broken[0]
	}
	return nil
}

// Broken returns every rule that the configuration breaks.
func (c Config) Broken() (broken []*ConfigError) {
	for _, rule := range []struct {
		broken  bool
		key     string
		problem string
	}{
		{c.RoundsPerEpoch == 0 && c.EpochTime == 0, "rounds_per_epoch", "must be set, or epoch_time instead"},
		{c.RoundsPerEpoch != 0 && c.EpochTime != 0, "epoch_time", "must not be set together with rounds_per_epoch; remove one of them"},
		{c.EpochTime != 0 && c.WarmupTime >= c.EpochTime, "warmup_time", "must be less than epoch_time"},
		{c.MaxRoundTrainTime == 0, "max_round_train_time", "must not be 0"},
		{c.EpochTime != 0 && c.MaxRoundTrainTime >= c.EpochTime, "max_round_train_time", "must be less than epoch_time"},
		{c.RoundWitnessTime == 0, "round_witness_time", "must not be 0"},
		{c.MinClients == 0, "min_clients", "must not be 0"},
		{c.InitMinClients < c.MinClients, "init_min_clients", "must not be less than min_clients"},
		{c.InitMinClients > MaxClients, "init_min_clients", "must not be more than 256"},
		{c.GlobalBatchSizeStart == 0, "global_batch_size_start", "must not be 0"},
		{c.GlobalBatchSizeEnd == 0, "global_batch_size_end", "must not be 0"},
		{c.GlobalBatchSizeEnd < c.GlobalBatchSizeStart, "global_batch_size_end", "must not be less than global_batch_size_start"},
		{c.TotalSteps == 0, "total_steps", "must not be 0"},
		{c.TotalSteps == 1<<32-1, "total_steps", "must be less than 4294967295"},
		{c.WitnessNodes > c.MinClients, "witness_nodes", "must not be more than min_clients"},
		{c.WitnessNodes > MaxWitnesses, "witness_nodes", "must not be more than 32"},
		{c.CooldownTime == 0, "cooldown_time", "must not be 0"},
		{c.WaitingForMembersExtraTime == 0, "waiting_for_members_extra_time", "must not be 0"},
		{c.VerificationPercent > 100, "verification_percent", "must not be more than 100"},
	} {
		if rule.broken {
			broken = append(broken, &ConfigError{Key: rule.key, Problem: rule.problem})
		}
	}
	return append(broken, c.brokenTimes()...)
}

// brokenTimes returns the times that exceed MaxTime.
func (c *Config) brokenTimes() (broken []*ConfigError) {
	for _, time := range []struct {
		key   string
		value uint64
	}{
		{"warmup_time", c.WarmupTime},
		{"cooldown_time", c.CooldownTime},
		{"epoch_time", c.EpochTime},
		{"max_round_train_time", c.MaxRoundTrainTime},
		{"round_witness_time", c.RoundWitnessTime},
		{"waiting_for_members_extra_time", c.WaitingForMembersExtraTime},
	} {
		if time.value > MaxTime {
			broken = append(broken, &ConfigError{Key: time.key, Problem: "must not be more than 1000000000 seconds"})
		}
	}
	return broken
}

// Validate reports the first rule that the configuration or the model breaks, as a *ConfigError.
// Apply refuses an UpdateConfig that Validate does not accept.
func (u *UpdateConfig) Validate() error {
	if err := u.Config.Validate(); err != nil {
		return err
	}
	return u.Model.validate(u.Config)
}

// BatchSize returns the number of sequences of a round that starts at dataIndex. It grows linearly,
// rounded half up, from GlobalBatchSizeStart to GlobalBatchSizeEnd while the run reads its first
// GlobalBatchSizeWarmupTokens tokens.
func (c Config) BatchSize(dataIndex uint64, maxSeqLen uint32) uint32 {
	warmup := c.GlobalBatchSizeWarmupTokens
	high, tokens := bits.Mul64(dataIndex, uint64(maxSeqLen))
	if high != 0 || tokens >= warmup {
		return c.GlobalBatchSizeEnd
	}
	high, low := bits.Mul64(uint64(c.GlobalBatchSizeEnd-c.GlobalBatchSizeStart), tokens)
	grown, rest := bits.Div64(high, low, warmup) // high < warmup because tokens < warmup
	if rest >= warmup-rest {
		grown++
	}
	return c.GlobalBatchSizeStart + uint32(grown)
}

// validate reports the first rule that the model breaks under the configuration, as a
// *ConfigError.
func (m *Model) validate(c Config) error {
	rounds := uint64(c.RoundsPerEpoch)
	if c.EpochTime != 0 {
		rounds = (c.EpochTime - c.WarmupTime) / c.MaxRoundTrainTime
	}
	switch {
	case m.MaxSeqLen == 0:
		return &ConfigError{Key: "max_seq_len", Problem: "must not be 0"}
	case uint64(m.ColdStartWarmupSteps) > rounds:
		return &ConfigError{Key: "cold_start_warmup_steps", Problem: "must fit in one epoch"}
	case len(m.Definition) > MaxDefinitionSize:
		return &ConfigError{Key: "model", Problem: "has a definition of more than 8192 bytes"}
	}
	return m.Checkpoint.validate()
}

func (c *Checkpoint) validate() error {
	p2p := c.FromPeers()
	wrongOrigin := c.Origin != 0
	if p2p {
		wrongOrigin = !c.Origin.isOrigin() || c.Origin.overP2P() != c.Kind
	}
	switch {
	case !p2p && !c.Kind.isOrigin():
		return &ConfigError{Key: "checkpoint", Problem: "has an unknown kind"}
	case wrongOrigin:
		return &ConfigError{Key: "checkpoint", Problem: "has an origin that does not fit its kind"}
	case c.Repo == "" && c.Kind != CheckpointDummy && c.Origin != CheckpointDummy:
		return &ConfigError{Key: "checkpoint", Problem: "names no repository, bucket or folder"}
	case len(c.Repo)+len(c.Revision) > MaxRepoLength:
		return &ConfigError{Key: "checkpoint", Problem: "has a name of more than 192 bytes"}
	case !p2p && (c.Digest != [32]byte{} || c.Step != 0):
		return &ConfigError{Key: "checkpoint", Problem: "has a digest or a step though it is not from peers"}
	}
	return nil
}

// isOrigin reports whether a model of this kind is available without peers.
func (k CheckpointKind) isOrigin() bool {
	switch k {
	case CheckpointHub, CheckpointGcs, CheckpointLocal, CheckpointDummy:
		return true
	default:
		return false
	}
}

// FromPeers reports whether joining clients get the checkpoint's model from members.
func (c *Checkpoint) FromPeers() bool {
	return c.Kind == CheckpointP2P || c.Kind == CheckpointP2PGcs
}

// Recorded returns a checkpoint of the same run that names the recorded model. Members provide that
// model.
func (c Checkpoint) Recorded(model Recorded) Checkpoint {
	if c.Kind.isOrigin() {
		c.Origin = c.Kind
		c.Kind = c.Origin.overP2P()
	}
	c.Digest, c.Step = model.Digest, model.Step
	return c
}

// overP2P returns the peer-to-peer kind of an origin.
func (k CheckpointKind) overP2P() CheckpointKind {
	if k == CheckpointGcs {
		return CheckpointP2PGcs
	}
	return CheckpointP2P
}

func validateRunID(runID string) error {
	if runID == "" || len(runID) > MaxRunIDLength {
		return &ConfigError{Key: "run_id", Problem: "must have 1 to 64 bytes"}
	}
	for i := range len(runID) {
		if runID[i] < ' ' || runID[i] == 0x7f {
			return &ConfigError{Key: "run_id", Problem: "must not have control characters"}
		}
	}
	return nil
}
