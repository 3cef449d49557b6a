package release

import (
	"errors"
	"fmt"
	"regexp"
	"strings"

	"golang.org/x/mod/semver"
)

// Maximum sizes in bytes of the fields of a Requirement.
const (
	MaxVersion = 32
	MaxAddress = 200
)

var (
	// ErrOutdated means that a host requires a newer version of the program.
	ErrOutdated = errors.New("this program is too old for the run")
	// ErrVersion means that a text is not the version of a release.
	ErrVersion = errors.New("not a version such as 0.2.0")
	// ErrAddress means that a text is not the address of releases.
	ErrAddress = errors.New("not an address such as https://example.com/psyche")
)

// development is the suffix of versions between releases.
const development = "-dev"

// address matches addresses that a shell keeps unchanged.
var address = regexp.MustCompile(`^https?://[A-Za-z0-9:/.,=+_~%@-]+$`)

// Requirement is the oldest version of the program with which clients may take part in a host's runs. The
// zero value admits every version.
type Requirement struct {
	Version string // such as 0.2.0; empty: every version
	Address string // folder with the install.sh of a newer version; empty: not known
}

// Check returns ErrVersion or ErrAddress if a field is not valid.
func (r Requirement) Check() error {
	if canonical := "v" + r.Version; r.Version != "" && (len(r.Version) > MaxVersion || semver.Canonical(canonical) != canonical) {
		return fmt.Errorf("%q: %w", r.Version, ErrVersion)
	}
	if r.Address == "" {
		return nil
	}
	return checkAddress(r.Address)
}

// checkAddress returns ErrAddress unless a text is the address of a folder with releases. A valid address
// contains no characters that a shell interprets.
func checkAddress(text string) error {
	if len(text) > MaxAddress || !address.MatchString(text) {
		return fmt.Errorf("%q: %w", text, ErrAddress)
	}
	return nil
}

// InstallLine returns the command line that installs the newest release at an address.
func InstallLine(address string) string {
	return "curl -fsSL " + strings.TrimSuffix(address, "/") + "/install.sh | sh"
}

// Admit returns ErrOutdated if the program's version is older than the required version. A development
// version counts as the release that it precedes: its number does not tell which changes it contains, and
// its user built it from the sources. If own is empty, Admit does not check the version.
func (r Requirement) Admit(own string) error {
	if r.Version == "" || own == "" || semver.Compare("v"+strings.TrimSuffix(own, development), "v"+r.Version) >= 0 {
		return nil
	}
	advice := "install a newer version (docs/install.md)"
	if r.Address != "" {
		advice = fmt.Sprintf("if you trust the host, install its version with: %s", InstallLine(r.Address))
	}
	return fmt.Errorf("%w: this is version %s, and the host requires %s or newer; %s", ErrOutdated, own, r.Version, advice)
}
