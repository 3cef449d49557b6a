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
	Fault  string `json:"fault"` // "wrong result", "did not open", "wrong prints", "did not reveal"
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

// Trials are those that are open. It is written when one of them has changed.
type Trials struct {
	Open []OpenTrial `json:"open,omitempty"` // in order of accusation
}

// OpenTrial is a trial as the process saw it.
type OpenTrial struct {
	Accused  string `json:"accused"`
	Accuser  string `json:"accuser"`
	Fault    string `json:"fault"`
	Since    uint32 `json:"since"` // step of the round of the accusation
	Until    uint32 `json:"until"` // last step in which jurors may vote
	Opened   bool   `json:"opened"`
	Jury     int    `json:"jury"` // 0: not drawn yet
	Guilty   int    `json:"guilty"`
	Innocent int    `json:"innocent"`
	Juror    bool   `json:"juror,omitempty"` // the process itself is on the jury
	Voted    bool   `json:"voted,omitempty"` // and has voted
}

// Audits are what the process has to audit now. It is written when that has changed.
type Audits struct {
	Due []DueAudit `json:"due,omitempty"`
}

// DueAudit is an audit that the process may still seal or judge.
type DueAudit struct {
	Step    uint32 `json:"step"` // of the round in which it audits
	Trainer string `json:"trainer"`
	Sealed  bool   `json:"sealed"`
	Judged  bool   `json:"judged"`
}

// Ejected says that the rules keep a client out. A process writes it once for each ejection that it
// finds in force.
type Ejected struct {
	Client string `json:"client"`
	Until  uint32 `json:"until"` // epoch from which on it may join again
	Reason string `json:"reason"`
	Step   uint32 `json:"step"` // of the run, when the process found it
}

// Kind implements Body.
func (Verdict) Kind() string { return "verdict" }

// Kind implements Body.
func (Accused) Kind() string { return "accused" }

// Kind implements Body.
func (Voted) Kind() string { return "voted" }

// Kind implements Body.
func (Trial) Kind() string { return "trial" }

// Kind implements Body.
func (Trials) Kind() string { return "trials" }

// Kind implements Body.
func (Audits) Kind() string { return "audits" }

// Kind implements Body.
func (Ejected) Kind() string { return "ejected" }
