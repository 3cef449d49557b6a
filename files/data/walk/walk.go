// Package walk lists the data files of a folder. All commands that read data from folders use it,
// so that they all read the same files of a folder.
//
// Hidden names are omitted and counted, see Hidden and hiddenFolder. Symbolic links are followed.
//
//	found, err := walk.Files("texts", walk.Options{})
package walk

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
)

// maxFolders is the maximum number of folders of one walk. Links can lead to a folder on many
// paths.
const maxFolders = 1 << 20

// Options selects files.
type Options struct {
	Hidden bool // also files and folders for which the functions Hidden and hiddenFolder report true
	// Enter reports whether to read a folder. It is called with the path of each folder, the
	// root first, before the files of that folder. Nil: all folders are read.
	Enter func(folder string, info fs.FileInfo) (bool, error)
}

// File is a file that was found.
type File struct {
	Path   string
	Inside string      // path within the root, with slashes
	Info   fs.FileInfo // of the target, if the file is a link
}

// Found is the result of a walk.
type Found struct {
	Files []File // sorted by their paths, folder by folder
	Counts
}

// Counts contains the numbers of names of each kind in a walk. A folder counts once.
type Counts struct {
	Hidden int // omitted because of their names
	Links  int // followed
	Dead   int // omitted: links without a target, and links to a folder that contains them
	Other  int // omitted: pipes, sockets, devices, and links to these
}

// Add adds the numbers of another walk.
func (c *Counts) Add(other Counts) {
	c.Hidden += other.Hidden
	c.Links += other.Links
	c.Dead += other.Dead
	c.Other += other.Other
}

// String lists the numbers that are not 0, each after "; ".
func (c Counts) String() string {
	var text strings.Builder
	for _, part := range []struct {
		number int
		name   string
	}{
		{c.Hidden, "hidden names excluded"}, {c.Links, "symbolic links followed"},
		{c.Dead, "links without a target, or to a folder that contains them, left out"},
		{c.Other, "pipes, sockets and devices left out"},
	} {
		if part.number > 0 {
			fmt.Fprintf(&text, "; %d %s", part.number, part.name)
		}
	}
	return text.String()
}

// systemNames are files that systems and programs create in folders, in lower case.
var systemNames = []string{"cachedir.tag", "thumbs.db", "ehthumbs.db", "desktop.ini", "icon\r"}

// Hidden reports whether a file is not data because of its name, without folder. The name begins
// with a dot (which includes the ._* of macOS), or is typical of a lock, an unfinished download, an
// editor's backup copy, or a description of other files.
func Hidden(name string) bool {
	if strings.HasPrefix(name, ".") || strings.HasPrefix(name, "~$") || strings.HasSuffix(name, "~") {
		return true
	}
	lower := strings.ToLower(name)
	return slices.Contains(systemNames, lower) || slices.Contains([]string{".lock", ".incomplete", ".metadata", ".crdownload"}, path.Ext(lower))
}

// hiddenFolder reports whether the name of a folder is not data: it begins with a dot, or with two
// underscores, as __MACOSX and __pycache__. Python's datasets omits the same folders.
func hiddenFolder(name string) bool {
	return strings.HasPrefix(name, ".") || strings.HasPrefix(name, "__")
}

// Files lists the files of a folder and of the folders in it. The root may be a link, and its
// own name may be hidden.
func Files(root string, o Options) (Found, error) {
	w := walker{Options: o}
	info, err := os.Stat(root)
	if err == nil && !info.IsDir() {
		err = &fs.PathError{Op: "list", Path: root, Err: errors.New("not a folder")}
	}
	if err != nil {
		return Found{}, err
	}
	err = w.folder(root, "", info)
	return w.found, err
}

type walker struct {
	Options
	found   Found
	around  []fs.FileInfo // folders from the root to the current one
	folders int           // entered so far
}

func (w *walker) folder(dir, inside string, info fs.FileInfo) error {
	if w.folders++; w.folders > maxFolders {
		return fmt.Errorf("%s: more than %d folders; remove links that form cycles or lead to the same folder repeatedly", dir, maxFolders)
	}
	if w.Enter != nil {
		if enter, err := w.Enter(dir, info); err != nil || !enter {
			return err
		}
	}
	entries, err := os.ReadDir(dir) // sorted
	if err != nil {
		return err
	}
	w.around = append(w.around, info)
	defer func() { w.around = w.around[:len(w.around)-1] }()
	for _, entry := range entries {
		if err := w.entry(filepath.Join(dir, entry.Name()), path.Join(inside, entry.Name()), entry); err != nil {
			return err
		}
	}
	return nil
}

func (w *walker) entry(name, inside string, entry fs.DirEntry) error {
	link := entry.Type()&fs.ModeSymlink != 0
	if !w.Hidden && !entry.IsDir() && Hidden(entry.Name()) || entry.IsDir() && w.hidden(entry.Name()) {
		w.found.Hidden++
		return nil
	}
	info, err := os.Stat(name)
	switch {
	case link && (errors.Is(err, fs.ErrNotExist) || errors.Is(err, syscall.ELOOP) || errors.Is(err, syscall.ENOTDIR)),
		err == nil && info.IsDir() && w.within(info): // including a folder reached again through a link to its parent
		w.found.Dead++
		return nil
	case err != nil:
		return err
	}
	if link && info.IsDir() && w.hidden(entry.Name()) {
		w.found.Hidden++
		return nil
	}
	if link && (info.IsDir() || info.Mode().IsRegular()) {
		w.found.Links++
	}
	switch {
	case info.IsDir():
		return w.folder(name, inside, info)
	case info.Mode().IsRegular():
		w.found.Files = append(w.found.Files, File{Path: name, Inside: inside, Info: info})
	default:
		w.found.Other++
	}
	return nil
}

func (w *walker) hidden(folder string) bool { return !w.Hidden && hiddenFolder(folder) }

// within reports whether the current folder is inside a folder.
func (w *walker) within(folder fs.FileInfo) bool {
	return slices.ContainsFunc(w.around, func(other fs.FileInfo) bool { return os.SameFile(folder, other) })
}
