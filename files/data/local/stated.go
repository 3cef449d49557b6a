package local

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"

	"github.com/psyche-go/psyche/files/data/tokens"
)

// resolveSize compares what lies beside the files, and their headers, with the size that
// their tokens are to have; 0 becomes what they say, or what is usual.
func (f *Folder) resolveSize(o *Options) error {
	if o.TokenSize == 0 && f.described != nil {
		o.TokenSize = f.described.tokenSize
	}
	said := f.described != nil
	for _, file := range f.files {
		all, err := stated(file)
		if err != nil {
			return err
		}
		said = said || len(all) > 0
		for _, says := range all {
			if o.TokenSize == 0 {
				o.TokenSize = says.TokenSize
			}
			if err := says.Check(file.path, file.size, o.TokenSize); err != nil {
				return fmt.Errorf("%w: %w", ErrDescribed, err)
			}
		}
	}
	if said || o.TokenSize != 0 && !o.Presumed {
		return nil
	}
	if o.Presumed {
		return tokens.CheckPresumed(f.files[0].path, f.files[0].size, o.VocabSize)
	}
	usual, err := tokens.AssumeSize(f.files[0].path, f.files[0].size, o.VocabSize)
	o.TokenSize = usual
	return err
}

// stated returns what files beside a token file, and its header, say about it.
func stated(f *file) (all []tokens.Stated, err error) {
	for _, path := range tokens.Sidecars(f.path) {
		says, found, err := readSidecar(path)
		if err != nil {
			return nil, err
		}
		if found {
			all = append(all, says)
		}
	}
	says, found, err := tokens.ReadHeader(f.path, f.start, f.size)
	if found {
		all = append(all, says)
	}
	return all, err
}

func readSidecar(path string) (s tokens.Stated, found bool, err error) {
	if info, err := os.Stat(path); errors.Is(err, fs.ErrNotExist) || err == nil && info.IsDir() {
		return s, false, nil
	}
	opened, err := openFile(path)
	if err != nil {
		return s, false, err
	}
	defer func() { err = errors.Join(err, opened.Close()) }()
	return tokens.ReadSidecar(context.Background(), opened)
}
