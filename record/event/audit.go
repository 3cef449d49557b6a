package event

// Opened says that the process made the opening of its own result.
type Opened struct {
	Step    uint32  `json:"step"` // of the result
	Bytes   int     `json:"bytes"`
	Seconds float64 `json:"seconds"`
}

// Audit is what the process found when it audited a result of another member.
type Audit struct {
	Step    uint32  `json:"step"` // of the result
	Trainer string  `json:"trainer"`
	Outcome string  `json:"outcome"`                 // "passed", "faulty", "silent", "unclear", "other data"
	Opening int     `json:"opening_bytes,omitempty"` // size of what the trainer opened; 0: nobody had it
	Seconds float64 `json:"seconds,omitempty"`       // that computing it again took
	Detail  string  `json:"detail,omitempty"`
}

// Accused says that the process accused a member, whom a jury will judge.
type Accused struct {
	Step   uint32 `json:"step"` // of the result
	Client string `json:"client"`
	Fault  string `json:"fault"` // "wrong result", "opens to nobody", "part N false or missing"
	Detail string `json:"detail"`
}

// Voted is the process's vote in a trial.
type Voted struct {
	Step    uint32 `json:"step"` // of the result
	Accused string `json:"accused"`
	Guilty  bool   `json:"guilty"`
	Detail  string `json:"detail,omitempty"`
}

// Trial is one that began or ended.
type Trial struct {
	Accused string `json:"accused"`
	Accuser string `json:"accuser"`
	Step    uint32 `json:"step"` // of the result
	Fault   string `json:"fault"`
	What    string `json:"what"` // one of the constants Trial…
}

// What became of a trial.
const (
	TrialBegins   = "begins"
	TrialConvicts = "the accused is ejected"
	TrialRefutes  = "the accuser is ejected"
	TrialEnds     = "nobody is ejected"
)

// Trials are those that are open. It is written when one of them has changed.
type Trials struct {
	Open []OpenTrial `json:"open,omitempty"` // in order of accusation
}

// OpenTrial is a trial as the process saw it.
type OpenTrial struct {
	Accused  string `json:"accused"`
	Accuser  string `json:"accuser"`
	Step     uint32 `json:"step"` // of the result
	Fault    string `json:"fault"`
	Since    uint32 `json:"since"` // step of the round of the accusation
	Until    uint32 `json:"until"` // step of the last round of a trial that does not decide, unless its time is not over
	Jury     int    `json:"jury"`  // 0: not drawn yet
	Guilty   int    `json:"guilty"`
	Innocent int    `json:"innocent"`
	Juror    bool   `json:"juror,omitempty"` // the process itself is on the jury
	Voted    bool   `json:"voted,omitempty"` // and has voted
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
func (Opened) Kind() string { return "opened" }

// Kind implements Body.
func (Audit) Kind() string { return "audit" }

// Kind implements Body.
func (Accused) Kind() string { return "accused" }

// Kind implements Body.
func (Voted) Kind() string { return "voted" }

// Kind implements Body.
func (Trial) Kind() string { return "trial" }

// Kind implements Body.
func (Trials) Kind() string { return "trials" }

// Kind implements Body.
func (Ejected) Kind() string { return "ejected" }
