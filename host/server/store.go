package server

import (
	"bytes"
	"encoding/hex"
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

	"github.com/psyche-go/psyche/base/identity"
	"github.com/psyche-go/psyche/core/coordinator"
	"github.com/psyche-go/psyche/host/core"
	"github.com/psyche-go/psyche/record/follow"
	"github.com/psyche-go/psyche/record/journal"
)

// HostKeyFile is the file name of the host's key in Options.SaveStateDir.
const HostKeyFile = "host-key.json"

// errOtherRun means that a run's journal was started with a different configuration.
var errOtherRun = errors.New("the saved run differs from the given run")

// JournalPath returns the path of a run's journal in a save-state directory.
func JournalPath(dir, runID string) string {
	return filepath.Join(dir, url.PathEscape(runID)+".journal")
}

// snapshotPath returns the path of a run's newest snapshot in a save-state directory.
func snapshotPath(dir, runID string) string {
	return filepath.Join(dir, url.PathEscape(runID)+".snapshot")
}

// store is the persistent data of a run.
type store struct {
	log          *follow.Follower
	draws        *draws           // nil if the run is finished
	names        core.Names       // in the log when it was opened
	journal      *journal.Journal // a temporary one if nothing is saved
	journalPath  string
	snapshotPath string
	unsaved      int      // records since the newest snapshot
	fresh        [][]byte // unpublished records
	begunState   []byte   // first state of the newest epoch; nil if certs has it or the epoch began before the start
	begunAt      int64    // journal offset of begunState
}

// certificatesPath returns the path of the certificates of a run's epochs in a save-state
// directory.
func certificatesPath(dir, runID string) string {
	return filepath.Join(dir, url.PathEscape(runID)+".certificates")
}

// MakeStateDir creates the directory of Options.SaveStateDir if it does not exist. It does nothing
// for "".
func MakeStateDir(dir string) error {
	if dir == "" {
		return nil
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return fmt.Errorf("save-state directory: %w", err)
	}
	return nil
}

// ErrNoHostKey means that a save-state directory has journals of runs, but no key of their host.
var ErrNoHostKey = errors.New("the host's key is missing")

// HostKey reads the host's key from a save-state directory, or creates and saves one. For the
// directory "" it saves nothing. In a directory with journals but no key, it returns ErrNoHostKey
// and creates no key.
func HostKey(dir string, random io.Reader) (identity.Key, error) {
	if dir == "" {
		return identity.Generate(random)
	}
	if err := MakeStateDir(dir); err != nil {
		return identity.Key{}, err
	}
	path := filepath.Join(dir, HostKeyFile)
	key, err := identity.LoadKeyFile(path)
	if !errors.Is(err, fs.ErrNotExist) {
		return key, err
	}
	runs, err := savedRuns(dir)
	switch {
	case err != nil:
		return key, err
	case len(runs) > 0:
		return key, fmt.Errorf("%w: %s does not exist, but %s needs this key; restore the host's key, or choose another folder", ErrNoHostKey, path, filepath.Base(JournalPath(dir, runs[0])))
	}
	if key, err = identity.Generate(random); err != nil {
		return key, err
	}
	return key, identity.SaveKeyFile(path, key)
}

// savedRuns returns the ids of the runs with a journal in dir, in ascending order.
func savedRuns(dir string) ([]string, error) {
	if dir == "" {
		return nil, nil
	}
	entries, err := os.ReadDir(dir) // sorted
	if err != nil {
		return nil, fmt.Errorf("save-state directory: %w", err)
	}
	var ids []string
	for _, entry := range entries {
		name, isJournal := strings.CutSuffix(entry.Name(), ".journal")
		if !isJournal || entry.IsDir() {
			continue
		}
		id, err := url.PathUnescape(name)
		if err != nil || filepath.Base(JournalPath(dir, id)) != entry.Name() {
			return nil, fmt.Errorf("save-state directory: %s is not a valid name of a journal; move the file away", filepath.Join(dir, entry.Name()))
		}
		ids = append(ids, id)
	}
	return ids, nil
}

// openStore loads a run from dir, or starts it with the genesis first and the draws d. If first is
// nil, the run must be in dir. With an empty dir nothing is saved.
func openStore(dir, runID string, first *follow.Genesis, d *draws, logger *slog.Logger) (store, error) {
	if dir == "" {
		return temporaryStore(*first, d)
	}
	s := store{journalPath: JournalPath(dir, runID), snapshotPath: snapshotPath(dir, runID)}
	r, summary, err := s.replay(logger)
	if err != nil {
		return s, err
	}
	s.log, s.names, s.unsaved = r.log, r.names, summary.Entries
	if summary.Torn > 0 {
		logger.Warn("removed an unfinished write from the end of the journal", "path", s.journalPath, "bytes", summary.Torn, "offset", summary.Size)
	}
	if r.log != nil && r.log.State.RunID != runID {
		err = fmt.Errorf("journal %s: %w: RunID is %s in the journal, want %s", s.journalPath, errOtherRun, r.log.State.RunID, runID)
	} else if s.draws, err = openDraws(drawsPath(dir, runID), r, d); err == nil {
		err = s.begin(first, logger)
	}
	if err != nil {
		err = errors.Join(err, s.journal.Close())
		if r.log == nil && first != nil { // a run that never started must not be in the way later
			err = errors.Join(err, os.Remove(s.journalPath))
		}
		return s, err
	}
	return s, nil
}

// temporaryStore starts a run that does not survive the process.
func temporaryStore(first follow.Genesis, d *draws) (store, error) {
	log, err := follow.Begin(first)
	if err != nil {
		return store{}, err
	}
	s := store{log: log, draws: d}
	if s.journal, err = journal.OpenTemporary(); err != nil {
		return store{}, err
	}
	record := follow.Record{Kind: follow.KindGenesis, Genesis: first}
	return s, errors.Join(s.journal.Append(record.AppendTo(nil)), s.journal.Commit())
}

// keeps reports whether the run survives the process.
func (s *store) keeps() bool { return s.journalPath != "" }

// begin writes the genesis to a new journal, or compares it with an existing journal's genesis.
func (s *store) begin(first *follow.Genesis, logger *slog.Logger) error {
	if s.log == nil {
		if first == nil {
			return fmt.Errorf("journal %s is empty; remove it", s.journalPath)
		}
		var err error
		if s.log, err = follow.Begin(*first); err != nil {
			return err
		}
		logger.Info("began the run", "run", s.log.State.RunID, "hash", hex.EncodeToString(runHash(s.log)), "journal", s.journalPath)
		record := follow.Record{Kind: follow.KindGenesis, Genesis: *first}
		return errors.Join(s.journal.Append(record.AppendTo(nil)), s.journal.Commit())
	}
	state := &s.log.State
	logger.Info("resumed the run", "run", state.RunID, "hash", hex.EncodeToString(runHash(s.log)), "journal", s.journalPath, "records", s.journal.Position().Entries,
		"replayed", s.unsaved, "state", state.RunState, "epoch", state.Progress.Epoch, "step", state.Progress.Step)
	if first == nil || bytes.Equal(s.log.Genesis().State, first.State) {
		return nil
	}
	given, err := coordinator.Decode(first.State)
	if err != nil {
		return err
	}
	return otherRun(s.journalPath, s.log.Genesis().State, given)
}

func runHash(log *follow.Follower) []byte {
	hash := log.Run()
	return hash[:]
}

// readGenesis returns the genesis in a journal.
func readGenesis(path string) (genesis follow.Genesis, err error) {
	file, err := os.Open(path)
	if err != nil {
		return genesis, err
	}
	defer func() { _ = file.Close() }()
	_, err = journal.Read(file, func(payload []byte) error {
		record, _, err := follow.BeginWith(payload)
		if err != nil {
			return err
		}
		genesis = record.Genesis
		return journal.ErrStop
	})
	if err == nil && genesis.Raw == nil {
		err = fmt.Errorf("%w: no genesis", ErrReplay)
	}
	return genesis, err
}

// replay opens the journal. It uses the newest snapshot if it is valid.
func (s *store) replay(logger *slog.Logger) (replayer, journal.Summary, error) {
	saved, state, err := readSnapshot(s.snapshotPath)
	if err == nil {
		if err = s.reaches(saved.position.Offset); err != nil {
			return replayer{}, journal.Summary{}, err
		}
	}
	var genesis follow.Genesis
	if err == nil {
		genesis, err = readGenesis(s.journalPath)
	}
	if err == nil {
		r := replayer{wantDigest: true, names: saved.names, log: follow.Resume(genesis, state, saved.head(), saved.starts)}
		var summary journal.Summary
		if summary, err = s.openFrom(saved.position, &r); err == nil && !r.wantDigest {
			summary.Entries -= saved.position.Entries
			return r, summary, nil
		}
		if err == nil {
			err = errors.Join(fmt.Errorf("%w: the journal ends at the snapshot's offset", errSnapshot), s.journal.Close())
		}
		if errors.Is(err, journal.ErrLocked) {
			return r, summary, err
		}
		if lost := s.endsBefore(saved.position.Offset); lost != nil {
			return r, summary, lost
		}
	}
	if !errors.Is(err, fs.ErrNotExist) {
		logger.Warn("cannot use the snapshot; reading the whole journal", "snapshot", s.snapshotPath, "reason", err)
	}
	var r replayer
	summary, err := s.openFrom(journal.Position{}, &r)
	if errors.Is(err, journal.ErrDamaged) || errors.Is(err, ErrReplay) {
		err = fmt.Errorf("%w; restore the file from a copy, inspect the damage with psyche server repair, or move the file away to start the run again", err)
	}
	return r, summary, err
}

// reaches returns an error if the journal is shorter than it was at a snapshot, which means that
// acknowledged actions are lost.
func (s *store) reaches(offset int64) error {
	info, err := os.Stat(s.journalPath)
	switch {
	case errors.Is(err, fs.ErrNotExist):
	case err != nil:
		return err
	case info.Size() >= offset:
		return nil
	}
	return s.lost(offset)
}

func (s *store) lost(offset int64) error {
	return fmt.Errorf("journal %s ends before offset %d, at which snapshot %s was taken; restore the journal, or remove both files",
		s.journalPath, offset, s.snapshotPath)
}

// endsBefore is like reaches, but counts only the undamaged part of the journal, because opening the
// journal truncates entries that were overwritten with zeros.
func (s *store) endsBefore(offset int64) error {
	file, err := os.Open(s.journalPath)
	if err != nil {
		return err
	}
	defer func() { _ = file.Close() }()
	summary, err := journal.Read(file, func([]byte) error { return nil })
	if err == nil && summary.Size < offset {
		return s.lost(offset)
	}
	return nil // a read of the whole journal finds other errors
}

// openFrom opens the journal and replays the records after a position.
func (s *store) openFrom(from journal.Position, r *replayer) (journal.Summary, error) {
	opened, summary, err := journal.OpenAt(s.journalPath, from, func(payload []byte) error {
		_, err := r.apply(payload)
		return err
	})
	s.journal = opened
	return summary, err
}

// append adds a record of the log to the next commit.
func (s *store) append(r core.Record) error {
	s.fresh = append(s.fresh, r.Payload)
	s.unsaved++
	err := s.journal.Append(r.Payload)
	if r.Began != nil {
		s.begunState, s.begunAt = r.Began, s.journal.End()
	}
	return err
}

// commit waits until all appended records are on the disk.
func (s *store) commit() error {
	if err := s.journal.Commit(); errors.Is(err, journal.ErrFull) {
		return err
	} else if err != nil {
		return fmt.Errorf("%w; nothing after the last acknowledged action was kept: free or repair the disk and start the server again", err)
	}
	return nil
}

// close closes the journal.
func (s *store) close() error {
	if s.journal == nil {
		return nil
	}
	return s.journal.Close()
}

// otherRun returns an error with the differences between a journal's genesis state and the given
// state.
func otherRun(path string, saved []byte, given coordinator.State) error {
	state, err := coordinator.Decode(saved)
	if err != nil {
		return fmt.Errorf("journal %s: %w", path, err)
	}
	var differences []string
	compare("", reflect.ValueOf(state), reflect.ValueOf(given), &differences)
	return fmt.Errorf("journal %s: %w: %s; start the server with the file that began this run, or with another save-state directory",
		path, errOtherRun, strings.Join(differences, ", "))
}

// compare lists the fields that differ between two structs of the same type.
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
		case strings.HasSuffix(name, "Time"): // milliseconds; files use seconds
			*differences = append(*differences, fmt.Sprintf("%s is %v s in the journal, want %v s", name, float64(a.Uint())/1000, float64(b.Uint())/1000))
		default:
			*differences = append(*differences, fmt.Sprintf("%s is %v in the journal, want %v", name, a, b))
		}
	}
}
