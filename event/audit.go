package event

// Verdict is what the process found when it audited a trainer's result.
type Verdict struct {
	Step    uint32 `json:"step"` // of the result
	Trainer string `json:"trainer"`
	Outcome string `json:"outcome"`                 // "passed", "faulty", "strange", "unopened", "unclear", "nothing to audit"
	Opening int    `json:"opening_bytes,omitempty"` // size of what the trainer opened; 0: it did not
	Detail  string `json:"detail,omitempty"`
}

// Accused says that the process accused a member, whom a jury will judge.
type Accused struct {
	Step   uint32 `json:"step"` // of the round in which the process verified
	Client string `json:"client"`
	Fault  string `json:"fault"` // "wrong result", "did not open", "wrong prints"
	Detail string `json:"detail"`
}

// Voted is the process's vote in a trial.
type Voted struct {
	Step    uint32 `json:"step"` // of the accusation
	Accused string `json:"accused"`
	Guilty  bool   `json:"guilty"`
	Detail  string `json:"detail,omitempty"`
}

// Trial is one that began or ended.
type Trial struct {
	Step    uint32 `json:"step"` // of the accusation
	Accused string `json:"accused"`
	Accuser string `json:"accuser"`
	Fault   string `json:"fault"`
	What    string `json:"what"` // "begins", "the accused is ejected", "the accuser is ejected", "nobody loses"
}

// Kind implements Body.
func (Verdict) Kind() string { return "verdict" }

// Kind implements Body.
func (Accused) Kind() string { return "accused" }

// Kind implements Body.
func (Voted) Kind() string { return "voted" }

// Kind implements Body.
func (Trial) Kind() string { return "trial" }
