package prepare

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"math"
	"os"
	"path/filepath"
	"strings"

	"github.com/psyche-go/psyche/base/diskspace"
	"github.com/psyche-go/psyche/files/data/manifest"
	"github.com/psyche-go/psyche/files/data/walk"
)

// heldOutName is the path of the held-out tokens in the output folder.
const heldOutName = manifest.HeldOutFolder + "/heldout.ds"

// Run reads text and writes tokens as Options define. After an error the output folder is
// unchanged. If the context ends, the process is killed or the disk is full, the completed part
// stays in a hidden folder there. The same call then resumes with the same result.
func Run(ctx context.Context, o Options) (_ manifest.Manifest, err error) {
	if err := o.check(); err != nil {
		return manifest.Manifest{}, err
	}
	o = o.withDefaults()
	if err := o.checkOutput(); err != nil {
		return manifest.Manifest{}, err
	}
	sources, met, err := o.sources()
	if err != nil {
		return manifest.Manifest{}, err
	}
	if err := o.checkField(sources); err != nil {
		return manifest.Manifest{}, fmt.Errorf("prepare data: %w", err)
	}
	if err := o.drawOne(ctx, sources); err != nil {
		return manifest.Manifest{}, fmt.Errorf("prepare data: %w", err)
	}
	fingerprint, err := o.fingerprint(sources)
	if err != nil {
		return manifest.Manifest{}, err
	}
	work, cleanUp, err := o.workFolder()
	if err != nil {
		return manifest.Manifest{}, err
	}
	keep := false
	defer func() { err = errors.Join(err, cleanUp(keep, err != nil)) }()
	journal, at, err := openJournal(work, fingerprint, o.Force)
	if err != nil {
		keep = true
		return manifest.Manifest{}, err
	}
	defer func() { err = errors.Join(err, journal.file.Close()) }()

	r := &run{o: o, met: met, journal: journal, at: at}
	if err := r.checkSpace(ctx, sources); err != nil {
		keep = r.at.Next != (place{})
		return manifest.Manifest{}, err
	}
	made, err := r.make(ctx, sources, work)
	if err != nil {
		ended := ctx.Err() != nil && errors.Is(err, ctx.Err())
		keep = (ended || diskspace.IsFull(err)) && r.at.Next != (place{})
		return manifest.Manifest{}, diskspace.Explain(err, r.kept())
	}
	return made, o.publish(work, made)
}

// make writes the tokens of all sources, and their manifest, to the work folder.
func (r *run) make(ctx context.Context, sources []source, work string) (manifest.Manifest, error) {
	made, err := r.encode(ctx, sources, work)
	if err != nil {
		return manifest.Manifest{}, err
	}
	text, err := made.Encode()
	if err != nil {
		return manifest.Manifest{}, err
	}
	if err := os.WriteFile(filepath.Join(work, manifest.Name), text, 0o644); err != nil {
		return manifest.Manifest{}, fmt.Errorf("write manifest: %w", err)
	}
	return made, nil
}

// checkOutput refuses a folder that contains data, unless the data may be replaced.
func (o Options) checkOutput() error {
	old, err := o.oldFiles()
	if err != nil {
		return err
	}
	if len(old) > 0 && !o.Force {
		return fmt.Errorf("write tokens to %s: %w (%s); use another folder, or replace the data with --force", o.Output, errOutputExists, old[0])
	}
	return nil
}

// oldFiles returns the names of the files that an earlier run wrote to the output folder, and of
// any other file there that readers would treat as tokens.
func (o Options) oldFiles() ([]string, error) {
	entries, err := os.ReadDir(o.Output)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("write tokens: %w", err)
	}
	var old []string
	for _, entry := range entries {
		switch name := entry.Name(); {
		case name == manifest.Name, !entry.IsDir() && strings.HasSuffix(name, ".ds"):
			old = append(old, name)
		}
	}
	if _, err := os.Stat(filepath.Join(o.Output, filepath.FromSlash(heldOutName))); err == nil {
		old = append(old, heldOutName)
	}
	return old, nil
}

// run is the state of Run.
type run struct {
	o                 Options
	met               walk.Counts
	journal           *journal
	at                entry // last entry of the journal
	training, heldOut *shardWriter
	progress          Progress
	bytes             int64 // bytes of input since the last entry
	inFile            int64 // bytes of text of the current file
}

// encode writes the tokens of all sources to the work folder.
func (r *run) encode(ctx context.Context, sources []source, work string) (manifest.Manifest, error) {
	r.training = &shardWriter{
		dir: work, limit: uint64(r.o.ShardTokens), tokenSize: r.o.TokenSize,
		name: func(number int) string { return fmt.Sprintf("train-%05d.ds", number) },
	}
	r.heldOut = &shardWriter{
		dir: work, limit: math.MaxInt64, tokenSize: r.o.TokenSize,
		name: func(int) string { return heldOutName },
	}
	defer r.training.abandon()
	defer r.heldOut.abandon()
	if err := r.resume(); err != nil {
		return manifest.Manifest{}, err
	}
	r.progress = r.at.Progress
	for i, s := range sources {
		if r.progress.AllInput += s.size; i < r.at.Next.Source {
			r.progress.Input += s.size
		}
	}
	if err := r.o.pipeline(ctx, sources, r.at.Next, r.write, r.finish); err != nil {
		return manifest.Manifest{}, fmt.Errorf("prepare data: %w", err)
	}
	return r.manifest()
}

// resume continues after the last entry of the journal. If files are missing, because a run was
// killed while it moved them into place, it starts from the beginning.
func (r *run) resume() error {
	err := errors.Join(r.training.resume(r.at.Training), r.heldOut.resume(r.at.HeldOut))
	if errors.Is(err, fs.ErrNotExist) {
		r.training.abandon()
		r.heldOut.abandon()
		r.at = entry{}
		err = errors.Join(r.training.resume(written{}), r.heldOut.resume(written{}), r.journal.write(r.at))
	}
	return err
}

// write writes tokens.
func (r *run) write(p part) error {
	if p.heldOut {
		r.progress.HeldOutTokens += uint64(len(p.ids))
		return r.heldOut.write(p.ids)
	}
	r.progress.Tokens += uint64(len(p.ids))
	return r.training.write(p.ids)
}

// finish counts a written job, and writes an entry of the journal from time to time.
func (r *run) finish(j *job) error {
	r.progress.Texts += j.count
	r.progress.Bytes += j.bytes
	// A file may have more text than its size (if compressed) or less (if it has objects). When it
	// ends, exactly its size has been counted.
	before := min(r.inFile, j.source.size)
	r.inFile += j.bytes
	r.progress.Input += min(r.inFile, j.source.size) - before
	if j.last {
		r.progress.Files++
		r.progress.Input += j.source.size - min(r.inFile, j.source.size)
		r.inFile = 0
	}
	if j.skipped != nil {
		if r.progress.SkippedBinary++; r.progress.SkippedBinary == 1 {
			r.progress.FirstSkipped = fmt.Sprintf("%s: %v", j.source.path, j.skipped)
		}
	}
	if r.o.Progress != nil {
		r.o.Progress(r.progress)
	}
	if r.bytes += j.bytes; r.bytes < r.o.journalEvery {
		return nil
	}
	r.bytes = 0
	next := entry{Next: j.end, Progress: r.progress}
	var err error
	if next.Training, err = r.training.sync(); err != nil {
		return err
	}
	if next.HeldOut, err = r.heldOut.sync(); err != nil {
		return err
	}
	if err := r.journal.write(next); err != nil {
		return fmt.Errorf("write journal: %w", err)
	}
	r.at = next
	if r.o.afterJournal != nil {
		r.o.afterJournal()
	}
	return nil
}

// manifest completes the files and describes them.
func (r *run) manifest() (manifest.Manifest, error) {
	o, progress := r.o, r.progress
	if progress.Tokens == 0 {
		return manifest.Manifest{}, fmt.Errorf("prepare data: %w: %s", errNoText, r.o.whyNothing(progress, r.met))
	}
	if progress.HeldOutTokens == 0 && (o.HeldOutFraction > 0 || len(o.HeldOut) > 0) {
		return manifest.Manifest{}, fmt.Errorf("prepare data: %w for the held-out part: %w; name a held-out file instead", errNoText, ErrOneText)
	}
	files, err := r.training.finish()
	if err != nil {
		return manifest.Manifest{}, err
	}
	held, err := r.heldOut.finish()
	if err != nil {
		return manifest.Manifest{}, err
	}
	hash := sha256.Sum256(o.Tokenizer.JSON())
	return manifest.Manifest{
		Version:          1,
		Tokenizer:        manifest.Tokenizer{Name: o.TokenizerName, VocabSize: o.Tokenizer.VocabSize(), SHA256: hex.EncodeToString(hash[:])},
		TokenSizeInBytes: o.TokenSize,
		Begin:            o.Begin,
		Separator:        append([]int32{}, o.Separator...),
		TextFiles:        progress.Files - progress.SkippedBinary,
		Texts:            progress.Texts,
		SkippedBinary:    progress.SkippedBinary,
		HiddenLeftOut:    r.met.Hidden,
		LinksFollowed:    r.met.Links,
		LinksLeftOut:     r.met.Dead,
		SpecialLeftOut:   r.met.Other,
		Tokens:           progress.Tokens,
		HeldOutTokens:    progress.HeldOutTokens,
		Files:            files,
		HeldOut:          held,
	}, nil
}

// whyNothing returns the reason why a run has no tokens.
func (o Options) whyNothing(p Progress, met walk.Counts) string {
	named := ""
	if o.fieldGiven {
		named = fmt.Sprintf("; check that --field %s names the texts", o.Field)
	}
	switch binary := p.SkippedBinary; {
	case p.Files == 0 && met.Hidden > 0:
		return fmt.Sprintf("no file was read%s; read hidden names with --include-hidden", met)
	case p.Files == 0 && met != (walk.Counts{}):
		return fmt.Sprintf("no file was read%s; check the include pattern", met)
	case p.Files == 0:
		return "no file was read; check the include pattern"
	case p.Files == 1 && binary == 1:
		return fmt.Sprintf("the only file is not text; if it is a table, set its format with --format (%s)", p.FirstSkipped)
	case p.Files == 1:
		return "the only file has no text, or only empty texts" + named
	case binary == 0:
		return fmt.Sprintf("none of the %d files has a nonempty text%s", p.Files, named)
	default:
		return fmt.Sprintf("none of the %d files contains a nonempty text; %d files are not text (the first is %s)", p.Files, binary, p.FirstSkipped)
	}
}

// publish moves the completed files into place, the manifest last: a folder with a manifest is
// complete.
func (o Options) publish(temporary string, m manifest.Manifest) error {
	old, err := o.oldFiles()
	if err != nil {
		return err
	}
	if len(old) > 0 && !o.Force {
		return fmt.Errorf("write tokens to %s: %w: %s appeared in the meantime", o.Output, errOutputExists, old[0])
	}
	// The old manifest is removed first, so an interruption leaves no folder that looks complete.
	names := append([]string{manifest.Name}, old...)
	for _, name := range names {
		if err := os.Remove(filepath.Join(o.Output, filepath.FromSlash(name))); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return fmt.Errorf("replace tokens: %w", err)
		}
	}
	for _, file := range append(append([]manifest.File{}, m.Files...), m.HeldOut...) {
		if err := move(temporary, o.Output, file.Name); err != nil {
			return err
		}
	}
	return move(temporary, o.Output, manifest.Name)
}

func move(from, to, name string) error {
	target := filepath.Join(to, filepath.FromSlash(name))
	if err := os.MkdirAll(filepath.Dir(target), 0o755); err != nil {
		return fmt.Errorf("move tokens to the output folder: %w", err)
	}
	if err := os.Rename(filepath.Join(from, filepath.FromSlash(name)), target); err != nil {
		return fmt.Errorf("move tokens to the output folder: %w", err)
	}
	return nil
}
