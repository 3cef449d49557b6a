package server

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/url"
	"os"
	"path/filepath"

	"github.com/psyche-go/psyche/base/hashchain"
	"github.com/psyche-go/psyche/core/coordinator"
	"github.com/psyche-go/psyche/host/core"
)

const (
	drawsFormat = "psychedraws/1 %d %x\n" // links and secret

	// createdDraws is for how many rounds a run can last that is begun over the network: the
	// host commits to their draws before it knows anything of the run.
	createdDraws = 1 << 20
	leastDraws   = 1 << 16 // of a run that the host begins by itself
	moreDraws    = 4       // times as many as its rounds, for an UpdateConfig that adds some
)

// errDraws says that the secret of a run's draws is not the one that the run was begun with.
var errDraws = core.ErrDraws

// draws are what the rounds of a run begin with: a hash chain, from its end back. Everybody knows
// its commitment from the beginning, so the host cannot choose a draw.
type draws struct {
	secret [32]byte
	links  int
	chain  *hashchain.Chain
}

// DrawsPath returns where the secret of a run's draws is kept in a save-state directory. Anybody who knows
// it foresees every witness of the run.
func DrawsPath(dir, runID string) string {
	return filepath.Join(dir, url.PathEscape(runID)+".draws")
}

func makeDraws(secret [32]byte, links int) *draws {
	return &draws{secret: secret, links: links, chain: hashchain.New(secret, links)}
}

// newDraws makes draws for so many rounds.
func newDraws(random io.Reader, links int) (*draws, error) {
	var secret [32]byte
	if _, err := io.ReadFull(random, secret[:]); err != nil {
		return nil, fmt.Errorf("draw the secret of a run: %w", err)
	}
	return makeDraws(secret, links), nil
}

// drawsOf returns how many draws a host makes for a run that it begins by itself.
func drawsOf(c coordinator.Config) int {
	links := leastDraws
	for links < hashchain.MaxLinks && links/moreDraws < int(c.TotalSteps) {
		links *= 2
	}
	return links
}

// openDraws returns the draws of a run whose journal was replayed; of one that begins, d, which it
// keeps before. A run that is over needs none.
func openDraws(path string, r replayer, d *draws) (*draws, error) {
	switch {
	case r.log == nil && d == nil:
		return nil, nil // nothing begins
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

// loadDraws reads what save wrote.
func loadDraws(path string) (*draws, error) {
	file, err := os.Open(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("%w: %s is missing; restore the file from the journal's folder: without it no round can begin", errDraws, path)
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
		err = fmt.Errorf("%d links, want 1 to %d, of a secret of %d bytes, want 32", links, hashchain.MaxLinks, len(secret))
	}
	if err != nil {
		return nil, fmt.Errorf("%w: %s: %w; restore the file from the journal's folder", errDraws, path, err)
	}
	return makeDraws([32]byte(secret), links), nil
}

// save keeps the secret, before the run that it is for begins.
func (d *draws) save(path string) error {
	if err := replaceFile(path, fmt.Appendf(nil, drawsFormat, d.links, d.secret)); err != nil {
		return fmt.Errorf("keep the secret of a run: %w", err)
	}
	return nil
}
