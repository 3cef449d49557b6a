package prepare

import (
	"bufio"
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"time"
	"unicode/utf8"

	"github.com/psyche-go/psyche/base/filelock"
)

// workName is the folder in the output folder for the files of an unfinished run.
const workName = ".tokenize"

// journalName is the file in that folder that records the progress of the run. It contains a line
// with the fingerprint of the run, and then entries. The last entry counts.
const journalName = "journal.jsonl"

// entry is a state from which a run can resume.
type entry struct {
	Next     place    `json:"next"` // position in the input
	Progress Progress `json:"progress"`
	Training written  `json:"training"`
	HeldOut  written  `json:"heldout"`
}

// written is the state of a shardWriter's files.
type written struct {
	Files []uint64 `json:"files"` // tokens of each file
}

// fingerprint identifies the input, and the options that determine the output.
func (o Options) fingerprint(sources []source) (string, error) {
	type file struct {
		Path    string
		Inside  string
		Format  Format
		HeldOut bool
		Size    int64
		Changed time.Time
		Sole    int64 `json:",omitempty"`
	}
	files := make([]file, len(sources))
	for i, s := range sources {
		files[i] = file{exact(s.path), exact(s.inside), s.format, s.heldOut, s.size, s.changed.UTC(), s.sole}
	}
	tokenizer := sha256.Sum256(o.Tokenizer.JSON())
	text, err := json.Marshal([]any{1, files, tokenizer, o.TokenizerName, o.TokenSize, o.Begin, o.Separator, o.Field, o.Quotes, o.fieldGiven, o.HeldOutFraction, o.ShardTokens})
	if err != nil {
		return "", fmt.Errorf("prepare data: %w", err)
	}
	sum := sha256.Sum256(text)
	return hex.EncodeToString(sum[:]), nil
}

// exact encodes a path for JSON, which cannot contain bytes that are not UTF-8.
func exact(path string) string {
	if utf8.ValidString(path) {
		return path
	}
	return strconv.Quote(path)
}

type journalHeader struct {
	Version     int    `json:"version"`
	Fingerprint string `json:"fingerprint"`
}

// journal appends entries to the file.
type journal struct{ file *os.File }

// maxJournal bounds the read part of a journal, in bytes.
const maxJournal = 256 << 20

// openJournal opens the journal in a folder, and returns the last entry. It creates a missing
// journal. With force it restarts a journal of a different run.
func openJournal(dir, fingerprint string, force bool) (*journal, entry, error) {
	file, err := os.OpenFile(filepath.Join(dir, journalName), os.O_RDWR|os.O_CREATE, 0o644)
	if err != nil {
		return nil, entry{}, fmt.Errorf("prepare data: %w", err)
	}
	last, end, err := readJournal(file, fingerprint)
	if errors.Is(err, errUnfinished) && force {
		last, end, err = entry{}, 0, nil
	}
	if err == nil {
		err = file.Truncate(end)
	}
	j := &journal{file}
	if err == nil {
		if _, err = file.Seek(end, 0); err == nil && end == 0 {
			err = j.write(journalHeader{Version: 1, Fingerprint: fingerprint})
		}
	}
	if err != nil {
		return nil, entry{}, errors.Join(fmt.Errorf("resume %s: %w", dir, err), file.Close())
	}
	return j, last, nil
}

// readJournal returns the last complete entry and the offset of its end.
func readJournal(file *os.File, fingerprint string) (last entry, end int64, err error) {
	info, err := file.Stat()
	if err != nil {
		return entry{}, 0, err
	}
	if info.Size() > maxJournal {
		return entry{}, 0, fmt.Errorf("%w: the journal is too large, %d bytes", errUnfinished, info.Size())
	}
	buffer := bufio.NewReader(file)
	for {
		line, err := buffer.ReadBytes('\n')
		if err != nil { // a line that a crash truncated
			return last, end, nil
		}
		decoder := json.NewDecoder(bytes.NewReader(line))
		decoder.DisallowUnknownFields()
		if end == 0 {
			var header journalHeader
			if err := decoder.Decode(&header); err != nil || header.Version != 1 || header.Fingerprint != fingerprint {
				return entry{}, 0, fmt.Errorf("%w: an unfinished run used other files, another tokenizer or other options; repeat the same command, or start again with --force", errUnfinished)
			}
		} else {
			var next entry
			if err := decoder.Decode(&next); err != nil {
				return last, end, nil
			}
			last = next
		}
		end += int64(len(line))
	}
}

func (j *journal) write(line any) error {
	text, err := json.Marshal(line)
	if err != nil {
		return err
	}
	if _, err := j.file.Write(append(text, '\n')); err != nil {
		return err
	}
	return j.file.Sync()
}

// workFolder creates the folder of unfinished files and takes its lock. cleanUp releases the lock.
// Without keep, cleanUp also removes the folder, and the output folder if workFolder created it.
func (o Options) workFolder() (dir string, cleanUp func(keep, failed bool) error, err error) {
	_, statErr := os.Stat(o.Output)
	dir = filepath.Join(o.Output, workName)
	folder, err := filelock.OpenFolder(dir, 0o755)
	if errors.Is(err, filelock.ErrHeld) {
		return "", nil, fmt.Errorf("%w: %s; wait for it, or choose another folder", errBusy, o.Output)
	}
	if err != nil {
		return "", nil, fmt.Errorf("make output folder: %w", err)
	}
	return dir, func(keep, failed bool) error {
		var err error
		if !keep {
			if err = os.RemoveAll(dir); failed && errors.Is(statErr, fs.ErrNotExist) {
				err = errors.Join(err, os.Remove(o.Output))
			}
		}
		return errors.Join(err, folder.Close())
	}, nil
}
