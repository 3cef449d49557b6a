package server

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"net/url"
	"os"
	"path/filepath"
	"reflect"
	"strings"

	"github.com/psyche-go/psyche/coordinator"
	"github.com/psyche-go/psyche/identity"
	"github.com/psyche-go/psyche/server/journal"
)

// HostKeyFile is the name of the host's key in Options.SaveStateDir.
const HostKeyFile = "host-key.json"

// ErrOtherRun says that the journal of a run was started with another configuration.
var ErrOtherRun = errors.New("the saved run differs from the given one")

// JournalPath returns where the journal of a run is kept in a save-state directory.
func JournalPath(dir, runID string) string {
	return filepath.Join(dir, url.PathEscape(runID)+".journal")
}

// store is what a host keeps between two starts.
type store struct {
	key       identity.Key
	state     coordinator.State
	journal   *journal.Journal // nil when nothing is kept
	hostNonce uint64
}

// openStore loads what dir has of the run, or begins it. With an empty dir nothing is kept
// and the host's key lives as long as the process.
func openStore(dir string, genesis func(coordinator.ClientID) (coordinator.State, error), random io.Reader, logger *slog.Logger) (store, error) {
	if dir != "" {
		if err := os.MkdirAll(dir, 0o755); err != nil {
			return store{}, fmt.Errorf("save-state directory: %w", err)
		}
	}
	key, err := hostKey(dir, random)
	if err != nil {
		return store{}, err
	}
	state, err := genesis(coordinator.ClientID(key.ID()))
	if err != nil {
		return store{}, fmt.Errorf("initial state: %w", err)
	}
	s := store{key: key, state: state}
	if dir != "" {
		err = s.openJournal(JournalPath(dir, state.RunID), logger)
	}
	return s, err
}

// hostKey reads the host's key from dir, or makes one and keeps it there.
func hostKey(dir string, random io.Reader) (identity.Key, error) {
	if dir == "" {
		return identity.Generate(random)
	}
	path := filepath.Join(dir, HostKeyFile)
	key, err := identity.LoadKeyFile(path)
	if !errors.Is(err, fs.ErrNotExist) {
		return key, err
	}
	if key, err = identity.Generate(random); err != nil {
		return key, err
	}
	return key, identity.SaveKeyFile(path, key)
}

// openJournal replays the journal at path over s.state, the genesis, or begins it with s.state.
func (s *store) openJournal(path string, logger *slog.Logger) error {
	var r replayer
	opened, summary, err := journal.Open(path, func(payload []byte) error {
		_, err := r.apply(payload)
		return err
	})
	if errors.Is(err, journal.ErrDamaged) {
		err = fmt.Errorf("%w; restore the file from a copy, or move it away to start the run anew", err)
	}
	if err != nil {
		return err
	}
	if summary.Torn > 0 {
		logger.Warn("cut an unfinished write off the journal", "path", path, "bytes", summary.Torn, "offset", summary.Size)
	}
	given := s.state.AppendTo(nil)
	switch {
	case r.genesis == nil:
		err = errors.Join(opened.Append(Record{Kind: RecordGenesis, State: given}.AppendTo(nil)), opened.Commit())
		logger.Info("began the run", "run", s.state.RunID, "journal", path)
	case bytes.Equal(r.genesis, given):
		s.state, s.hostNonce = r.state, r.hostNonce
		logger.Info("resumed the run", "run", s.state.RunID, "journal", path, "records", summary.Entries,
			"state", s.state.RunState, "epoch", s.state.Progress.Epoch, "step", s.state.Progress.Step)
	default:
		err = otherRun(path, r.genesis, s.state)
	}
	if err != nil {
		return errors.Join(err, opened.Close())
	}
	s.journal = opened
	return nil
}

// otherRun says in what the genesis state of a journal differs from the given one.
func otherRun(path string, saved []byte, given coordinator.State) error {
	state, err := coordinator.Decode(saved)
	if err != nil {
		return fmt.Errorf("journal %s: %w", path, err)
	}
	var differences []string
	compare("", reflect.ValueOf(state), reflect.ValueOf(given), &differences)
	return fmt.Errorf("journal %s: %w: %s; start the server with the file that began this run, or with another save-state directory",
		path, ErrOtherRun, strings.Join(differences, ", "))
}

// compare lists the fields of two structs of one type that differ.
func compare(prefix string, saved, given reflect.Value, differences *[]string) {
	for i := range saved.NumField() {
		name := prefix + saved.Type().Field(i).Name
		a, b := saved.Field(i), given.Field(i)
		switch {
		case a.Kind() == reflect.Struct:
			compare(name+".", a, b, differences)
		case reflect.DeepEqual(a.Interface(), b.Interface()):
		case a.Kind() == reflect.Slice || a.Kind() == reflect.Array:
			*differences = append(*differences, name+" differs")
		default:
			*differences = append(*differences, fmt.Sprintf("%s is %v there and %v here", name, a, b))
		}
	}
}
