package event

// Opened is written when the process has created the opening for its result.
type Opened struct {
	Step    uint32  `json:"step"` // of the result
	Bytes   int     `json:"bytes"`
	Seconds float64 `json:"seconds"`
}

// Audit is the outcome of an audit of another member's result by the process.
type Audit struct {
	Step    uint32  `json:"step"` // of the result
	Trainer string  `json:"trainer"`
	Outcome string  `json:"outcome"`                 // "passed", "faulty", "silent", "unclear", "other data"
	Opening int     `json:"opening_bytes,omitempty"` // size of the trainer's opening; 0: not available from any member
	Seconds float64 `json:"seconds,omitempty"`       // time to recompute the result
	Detail  string  `json:"detail,omitempty"`
}

// Accused is written when the process has accused a member, which a jury will judge.
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

// Trial is written when a trial begins or ends.
type Trial struct {
	Accused string `json:"accused"`
	Accuser string `json:"accuser"`
	Step    uint32 `json:"step"` // of the result
	Fault   string `json:"fault"`
	What    string `json:"what"` // one of the constants Trial…
}

// Values of Trial.What.
const (
	TrialBegins   = "begins"
	TrialConvicts = "the accused is ejected"
	TrialRefutes  = "the accuser is ejected"
	TrialEnds     = "nobody is ejected"
)

// Trials lists the open trials. It is written when one of them has changed.
type Trials struct {
	Open []OpenTrial `json:"open,omitempty"` // in order of accusation
}

// OpenTrial is a trial as seen by the process.
type OpenTrial struct {
	Accused  string `json:"accused"`
	Accuser  string `json:"accuser"`
	Step     uint32 `json:"step"` // of the result
	Fault    string `json:"fault"`
	Since    uint32 `json:"since"` // step of the round of the accusation
	Until    uint32 `json:"until"` // step of the round in which an undecided trial ends, unless its minimum time is not over
	Jury     int    `json:"jury"`  // number of jurors; 0: not drawn yet
	Guilty   int    `json:"guilty"`
	Innocent int    `json:"innocent"`
	Juror    bool   `json:"juror,omitempty"` // the process is on the jury
	Voted    bool   `json:"voted,omitempty"` // the process has voted
}

// Ejected means that a client is ejected. A process writes it once for each ejection that is in
// force.
type Ejected struct {
	Client string `json:"client"`
	Until  uint32 `json:"until"` // first epoch that the client may join again
	Reason string `json:"reason"`
	Step   uint32 `json:"step"` // of the run, when the process saw the ejection
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
