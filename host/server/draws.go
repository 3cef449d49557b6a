package server

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/url"
	"os"
	"path/filepath"

	"github.com/psyche-go/psyche/base/atomicfile"
	"github.com/psyche-go/psyche/base/hashchain"
	"github.com/psyche-go/psyche/core/coordinator"
	"github.com/psyche-go/psyche/host/core"
)

const (
	drawsFormat = "psychedraws/1 %d %x\n" // links and secret

	// createdDraws is the maximum number of rounds of a run that starts over the network. The host
	// commits to the draws before it knows the run.
	createdDraws = 1 << 20
	leastDraws   = 1 << 16 // for a run that the server starts by itself
	moreDraws    = 4       // multiple of the run's rounds, for an UpdateConfig that adds rounds
)

// errDraws means that the secret of a run's draws is not the original secret.
var errDraws = core.ErrDraws

// draws are the random values that start the rounds of a run: a hash chain, revealed from its end.
// Its commitment is public from the start, so the host cannot choose a draw.
type draws struct {
	secret [32]byte
	links  int
	chain  *hashchain.Chain
}

// drawsPath returns the path of the secret of a run's draws in a save-state directory. With this
// secret, all future witnesses of the run can be predicted.
func drawsPath(dir, runID string) string {
	return filepath.Join(dir, url.PathEscape(runID)+".draws")
}

func makeDraws(secret [32]byte, links int) *draws {
	return &draws{secret: secret, links: links, chain: hashchain.New(secret, links)}
}

// newDraws creates a chain with the given number of draws.
func newDraws(random io.Reader, links int) (*draws, error) {
	var secret [32]byte
	if _, err := io.ReadFull(random, secret[:]); err != nil {
		return nil, fmt.Errorf("create the secret of a run: %w", err)
	}
	return makeDraws(secret, links), nil
}

// drawsOf returns the number of draws for a run that the server starts by itself.
func drawsOf(c coordinator.Config) int {
	links := leastDraws
	for links < hashchain.MaxLinks && links/moreDraws < int(c.TotalSteps) {
		links *= 2
	}
	return links
}

// openDraws returns the draws of a run with a replayed journal. If the run is new, it saves d and
// returns it. It returns nil for a finished run.
func openDraws(path string, r replayer, d *draws) (*draws, error) {
	switch {
	case r.log == nil && d == nil:
		return nil, nil // the run has no more rounds
	case r.log == nil:
		return d, d.save(path)
	case r.log.State.RunState == coordinator.Finished:
		return nil, nil
	}
	d, err := loadDraws(path)
	if err == nil {
		err = core.Suffice(d.chain, &r.log.State, r.log.State.Config)
	}
	return d, err
}

// loadDraws reads the file that save wrote.
func loadDraws(path string) (*draws, error) {
	file, err := os.Open(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("%w: %s is missing; restore it from a copy of the journal's folder: without this file no round can begin", errDraws, path)
	}
	if err != nil {
		return nil, err
	}
	defer func() { _ = file.Close() }()
	if info, err := file.Stat(); err != nil {
		return nil, err
	} else if info.Mode().Perm()&0o077 != 0 {
		return nil, fmt.Errorf("other users can read %s and so predict the run's witnesses; chmod 600 it", path)
	}
	text, err := io.ReadAll(io.LimitReader(file, 128))
	if err != nil {
		return nil, err
	}
	var links int
	var secret []byte
	if _, err = fmt.Sscanf(string(text), drawsFormat, &links, &secret); err == nil && (len(secret) != 32 || links < 1 || links > hashchain.MaxLinks) {
		err = fmt.Errorf("%d links, want 1 to %d; the secret has %d bytes, want 32", links, hashchain.MaxLinks, len(secret))
	}
	if err != nil {
		return nil, fmt.Errorf("%w: %s: %w; restore it from a copy of the journal's folder", errDraws, path, err)
	}
	return makeDraws([32]byte(secret), links), nil
}

// save saves the secret. It must succeed before the run starts.
func (d *draws) save(path string) error {
	if err := atomicfile.Write(path, fmt.Appendf(nil, drawsFormat, d.links, d.secret), 0o600); err != nil {
		return fmt.Errorf("save the secret of a run: %w", err)
	}
	return nil
}
