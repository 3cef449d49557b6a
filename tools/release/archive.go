package main

import (
	"archive/tar"
	"archive/zip"
	"bytes"
	"compress/gzip"
	"errors"
	"fmt"
	"io"
	"os"
	"path"
	"slices"
	"strings"
	"time"
)

// file is a file of an archive. Its contents are data, or the file at path.
type file struct {
	name string // below the archive's folder, with slashes
	path string
	data []byte
	exec bool
}

func (f file) mode() int64 {
	if f.exec {
		return 0o755
	}
	return 0o644
}

func (f file) open() (io.ReadCloser, int64, error) {
	if f.path == "" {
		return io.NopCloser(bytes.NewReader(f.data)), int64(len(f.data)), nil
	}
	opened, err := os.Open(f.path)
	if err != nil {
		return nil, 0, err
	}
	info, err := opened.Stat()
	if err != nil {
		return nil, 0, errors.Join(err, opened.Close())
	}
	return opened, info.Size(), nil
}

// copyTo writes the file's contents into an archive.
func (f file) copyTo(w io.Writer, from io.ReadCloser) error {
	_, err := io.Copy(w, from)
	if err = errors.Join(err, from.Close()); err != nil {
		return fmt.Errorf("%s: %w", f.name, err)
	}
	return nil
}

// pack writes an archive of files in one folder. The name's suffix, .zip or .tar.gz, selects the
// format. The bytes depend only on the arguments and the contents of the files.
func pack(name, folder string, files []file, modified time.Time) error {
	files = slices.SortedFunc(slices.Values(files), func(a, b file) int { return strings.Compare(a.name, b.name) })
	out, err := os.Create(name)
	if err != nil {
		return err
	}
	write := packTar
	if strings.HasSuffix(name, ".zip") {
		write = packZip
	}
	if err := errors.Join(write(out, folder, files, modified), out.Close()); err != nil {
		return fmt.Errorf("%s: %w", name, err)
	}
	return nil
}

func packTar(out io.Writer, folder string, files []file, modified time.Time) error {
	zipped, err := gzip.NewWriterLevel(out, gzip.BestCompression)
	if err != nil {
		return err
	}
	archive := tar.NewWriter(zipped)
	for _, f := range files {
		from, size, err := f.open()
		if err != nil {
			return err
		}
		header := &tar.Header{Name: path.Join(folder, f.name), Size: size, Mode: f.mode(), ModTime: modified, Format: tar.FormatUSTAR}
		if err := archive.WriteHeader(header); err != nil {
			return errors.Join(err, from.Close())
		}
		if err := f.copyTo(archive, from); err != nil {
			return err
		}
	}
	return errors.Join(archive.Close(), zipped.Close())
}

func packZip(out io.Writer, folder string, files []file, modified time.Time) error {
	archive := zip.NewWriter(out)
	for _, f := range files {
		from, _, err := f.open()
		if err != nil {
			return err
		}
		header := &zip.FileHeader{Name: path.Join(folder, f.name), Method: zip.Deflate, Modified: modified}
		header.SetMode(os.FileMode(f.mode()))
		w, err := archive.CreateHeader(header)
		if err != nil {
			return errors.Join(err, from.Close())
		}
		if err := f.copyTo(w, from); err != nil {
			return err
		}
	}
	return archive.Close()
}
