package recipe

import (
	"errors"
	"fmt"
	"math"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/psyche-go/psyche/core/coordinator"
)

// Request describes the run that a user wants, and the measured facts about its text, model and machine.
type Request struct {
	Name    string  // id and title of the run
	Host    string  // name or address at which members reach the host
	Port    uint16  // of the data server
	Friends int     // expected members in addition to the host's own client
	Link    Mbits   // upload speed of a member's link
	Hours   float64 // wanted duration
	Open    bool    // strangers may join: members audit each other
	Hub     string  // repository of the first model on the Hub; empty: the server sends the model
	Facts
}

// Facts are the measured properties of the text, the model and the host's machine.
type Facts struct {
	Trained    bool    // the first model is trained already
	Parameters uint64  // of the model
	MaxTokens  int     // longest sequence of the model
	TokenSize  int     // bytes of a token in the token files: 2 or 4
	Tokens     uint64  // of the text, without the held-out share
	Speed      float64 // tokens per second that the host's machine trains
}

// Limits of requests.
const (
	MaxFriends = coordinator.MaxClients - 1
	maxHours   = 24 * 365
	minLink    = 0.25 // the slowest supported link (docs/limits.md)
	maxLink    = 1e6
)

// ErrRequest means that no run can meet the request. ErrText means that the text is too short.
var (
	ErrRequest = errors.New("no such run is possible")
	ErrText    = errors.New("too little text")
)

// Check checks the request, except Facts.
func (r Request) Check() error {
	switch {
	case r.Name == "" || len(r.Name) > coordinator.MaxRunIDLength || strings.ContainsFunc(r.Name, unicode.IsControl):
		return fmt.Errorf("%w: --name %q has %d bytes, want 1 to %d without control characters", ErrRequest, r.Name, len(r.Name), coordinator.MaxRunIDLength)
	case !utf8.ValidString(r.Name):
		return fmt.Errorf("%w: --name %q is not UTF-8", ErrRequest, r.Name)
	case r.Friends < 0 || r.Friends > MaxFriends:
		return fmt.Errorf("%w: --friends %d, want 0 to %d", ErrRequest, r.Friends, MaxFriends)
	case !(r.Hours > 0) || r.Hours > maxHours:
		return fmt.Errorf("%w: --hours %v, want more than 0, and at most %d", ErrRequest, r.Hours, maxHours)
	case !(r.Link >= minLink) || r.Link > maxLink:
		return fmt.Errorf("%w: --link of %v Mbit/s, want %v to %.0f", ErrRequest, float64(r.Link), minLink, float64(maxLink))
	case r.Open && r.Friends+1 < openMembers:
		return fmt.Errorf("%w: --open with --friends %d, want at least %d, so that %d members audit in each round", ErrRequest, r.Friends, openMembers-1, auditors)
	}
	return nil
}

// Mbits is the speed of a link in Mbit/s.
type Mbits float64

// UnmarshalText parses a speed such as 20mbit, 1gbit, 500kbit, or 20, which means Mbit/s.
func (m *Mbits) UnmarshalText(text []byte) error {
	number, factor := strings.ToLower(strings.TrimSpace(string(text))), 1.0
	number = strings.TrimSuffix(number, "/s")
	for unit, of := range map[string]float64{"kbit": 1e-3, "mbit": 1, "gbit": 1e3} {
		if rest, found := strings.CutSuffix(number, unit); found {
			number, factor = rest, of
		}
	}
	value, err := strconv.ParseFloat(strings.TrimSpace(number), 64)
	if err != nil || math.IsNaN(value) {
		return fmt.Errorf("speed %q, want for example 20mbit, 1gbit or 500kbit", text)
	}
	*m = Mbits(value * factor)
	return nil
}

// String formats the speed.
func (m Mbits) String() string { return strconv.FormatFloat(float64(m), 'g', -1, 64) + " Mbit/s" }
