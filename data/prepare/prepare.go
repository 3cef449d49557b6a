package prepare

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
)

// heldOutName is the path of the held-out tokens in the output folder.
const heldOutName = "heldout/heldout.ds"

// Run reads text and writes tokens as Options say. On an error the output folder is as
// it was.
func Run(ctx context.Context, o Options) (_ Manifest, err error) {
	if err := o.check(); err != nil {
		return Manifest{}, err
	}
	if o.ShardTokens == 0 {
		o.ShardTokens = DefaultShardTokens
	}
	if err := o.checkOutput(); err != nil {
		return Manifest{}, err
	}
	sources, err := o.sources()
	if err != nil {
		return Manifest{}, err
	}
	temporary, cleanUp, err := o.temporary()
	if err != nil {
		return Manifest{}, err
	}
	defer func() { err = errors.Join(err, cleanUp(err != nil)) }()

	manifest, err := o.encode(ctx, sources, temporary)
	if err != nil {
		return Manifest{}, err
	}
	text, err := manifest.encode()
	if err != nil {
		return Manifest{}, err
	}
	if err := os.WriteFile(filepath.Join(temporary, ManifestName), text, 0o644); err != nil {
		return Manifest{}, fmt.Errorf("write manifest: %w", err)
	}
	return manifest, o.publish(temporary, manifest)
}

// checkOutput refuses a folder that holds data, unless it may be replaced.
func (o Options) checkOutput() error {
	old, err := o.oldFiles()
	if err != nil {
		return err
	}
	if len(old) > 0 && !o.Force {
		return fmt.Errorf("write tokens to %s: %w (%s); use another folder, or --force to replace it", o.Output, ErrOutputExists, old[0])
	}
	return nil
}

// oldFiles returns the names of what an earlier run wrote to the output folder, and of
// any other file there that would be read as tokens.
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
		case name == ManifestName, !entry.IsDir() && strings.HasSuffix(name, ".ds"):
			old = append(old, name)
		}
	}
	if _, err := os.Stat(filepath.Join(o.Output, filepath.FromSlash(heldOutName))); err == nil {
		old = append(old, heldOutName)
	}
	return old, nil
}

// temporary makes a folder inside the output folder, so that what it holds can be
// renamed into place. CleanUp removes it and, after a failure, folders that were made.
func (o Options) temporary() (dir string, cleanUp func(failed bool) error, err error) {
	_, statErr := os.Stat(o.Output)
	if err := os.MkdirAll(o.Output, 0o755); err != nil {
		return "", nil, fmt.Errorf("make output folder: %w", err)
	}
	dir, err = os.MkdirTemp(o.Output, ".tokenize-")
	if err != nil {
		return "", nil, fmt.Errorf("make output folder: %w", err)
	}
	return dir, func(failed bool) error {
		err := os.RemoveAll(dir)
		if failed && errors.Is(statErr, fs.ErrNotExist) {
			err = errors.Join(err, os.Remove(o.Output))
		}
		return err
	}, nil
}

// encode writes the tokens of all sources to the temporary folder.
func (o Options) encode(ctx context.Context, sources []source, temporary string) (Manifest, error) {
	training := &shardWriter{
		dir: temporary, limit: o.ShardTokens, tokenSize: o.TokenSize,
		name: func(number int) string { return fmt.Sprintf("train-%05d.ds", number) },
	}
	heldOut := &shardWriter{
		dir: temporary, limit: int(^uint(0) >> 1), tokenSize: o.TokenSize,
		name: func(int) string { return heldOutName },
	}
	defer training.abandon()
	defer heldOut.abandon()

	var progress Progress
	var tokens []int32
	for _, source := range sources {
		if err := ctx.Err(); err != nil {
			return Manifest{}, fmt.Errorf("prepare data: %w", err)
		}
		text, ok, err := readText(source.path)
		if err != nil {
			return Manifest{}, err
		}
		progress.Files++
		if !ok {
			progress.SkippedBinary++
		} else if len(text) > 0 {
			if tokens, err = o.Tokenizer.AppendEncode(tokens[:0], text); err != nil {
				return Manifest{}, fmt.Errorf("encode %s: %w", source.path, err)
			}
			tokens = append(tokens, o.Separator...)
			writer, count := training, &progress.Tokens
			if source.heldOut {
				writer, count = heldOut, &progress.HeldOutTokens
			}
			if err := writer.write(tokens); err != nil {
				return Manifest{}, err
			}
			*count += uint64(len(tokens))
		}
		if o.Progress != nil {
			o.Progress(progress)
		}
	}
	return o.manifest(progress, training, heldOut)
}

// manifest completes the files and describes them.
func (o Options) manifest(progress Progress, training, heldOut *shardWriter) (Manifest, error) {
	if progress.Tokens == 0 {
		return Manifest{}, fmt.Errorf("prepare data: %w: %d files were read, %d of them are not text; is the include pattern right?",
			ErrNoText, progress.Files, progress.SkippedBinary)
	}
	if progress.HeldOutTokens == 0 && (o.HeldOutFraction > 0 || len(o.HeldOut) > 0) {
		return Manifest{}, fmt.Errorf("prepare data: %w to hold out; use a larger fraction, or name a file", ErrNoText)
	}
	files, err := training.finish()
	if err != nil {
		return Manifest{}, err
	}
	held, err := heldOut.finish()
	if err != nil {
		return Manifest{}, err
	}
	hash := sha256.Sum256(o.Tokenizer.JSON())
	return Manifest{
		Version:          1,
		Tokenizer:        Tokenizer{Name: o.TokenizerName, VocabSize: o.Tokenizer.VocabSize(), SHA256: hex.EncodeToString(hash[:])},
		TokenSizeInBytes: o.TokenSize,
		Separator:        append([]int32{}, o.Separator...),
		TextFiles:        progress.Files - progress.SkippedBinary,
		SkippedBinary:    progress.SkippedBinary,
		Tokens:           progress.Tokens,
		HeldOutTokens:    progress.HeldOutTokens,
		Files:            files,
		HeldOut:          append([]File{}, held...),
	}, nil
}

// publish moves the finished files into place, the manifest last: a folder with a
// manifest is complete.
func (o Options) publish(temporary string, m Manifest) error {
	old, err := o.oldFiles()
	if err != nil {
		return err
	}
	if len(old) > 0 && !o.Force {
		return fmt.Errorf("write tokens to %s: %w: %s appeared meanwhile", o.Output, ErrOutputExists, old[0])
	}
	// The manifest goes first, so that an interruption leaves no folder that looks whole.
	names := append([]string{ManifestName}, old...)
	for _, name := range names {
		if err := os.Remove(filepath.Join(o.Output, filepath.FromSlash(name))); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return fmt.Errorf("replace tokens: %w", err)
		}
	}
	for _, file := range append(append([]File{}, m.Files...), m.HeldOut...) {
		if err := move(temporary, o.Output, file.Name); err != nil {
			return err
		}
	}
	return move(temporary, o.Output, ManifestName)
}

func move(from, to, name string) error {
	target := filepath.Join(to, filepath.FromSlash(name))
	if err := os.MkdirAll(filepath.Dir(target), 0o755); err != nil {
		return fmt.Errorf("put tokens in place: %w", err)
	}
	if err := os.Rename(filepath.Join(from, filepath.FromSlash(name)), target); err != nil {
		return fmt.Errorf("put tokens in place: %w", err)
	}
	return nil
}
