package records

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"syscall"

	"github.com/fsnotify/fsnotify"
)

// kubeletDataLink is the symbolic link that a kubelet replaces when a mounted ConfigMap or Secret changes:
// the file itself is a link through it and never does.
const kubeletDataLink = "..data"

// NewFileReader reads a file. It watches the file's directory and not the file, which is another one after each
// replacement, or may not be there yet.
func NewFileReader(path string) Reader { return &fileReader{path: path} }

type fileReader struct{ path string }

// Read reads the file whole.
func (f *fileReader) Read(context.Context) ([]byte, error) {
	// Without O_NONBLOCK, opening a pipe waits for whoever may write to it.
	in, err := os.OpenFile(f.path, os.O_RDONLY|syscall.O_NONBLOCK, 0)
	if err != nil {
		return nil, err
	}
	defer func() { _ = in.Close() }()
	if info, err := in.Stat(); err != nil {
		return nil, err
	} else if !info.Mode().IsRegular() {
		return nil, fmt.Errorf("open %s: it is no regular file", f.path)
	}
	return io.ReadAll(io.LimitReader(in, MaxBytes+1))
}

// Watch tells when the file may have changed.
func (f *fileReader) Watch(ctx context.Context, changed func()) error {
	w, err := fsnotify.NewWatcher()
	if err != nil {
		return fmt.Errorf("watch files: %w", err)
	}
	defer func() { _ = w.Close() }()
	dir, base := filepath.Split(filepath.Clean(f.path))
	dir = filepath.Clean(dir)
	if err := w.Add(dir); err != nil {
		return fmt.Errorf("watch the directory of %s: %w", f.path, err)
	}
	changed()
	for {
		select {
		case <-ctx.Done():
			return nil
		case e := <-w.Events:
			switch name := filepath.Base(e.Name); {
			case filepath.Clean(e.Name) == dir && e.Op.Has(fsnotify.Remove|fsnotify.Rename):
				return fmt.Errorf("watch %s: the directory has gone", dir)
			case name == base || name == kubeletDataLink:
				changed()
			}
		case err := <-w.Errors:
			if !errors.Is(err, fsnotify.ErrEventOverflow) {
				return fmt.Errorf("watch %s: %w", dir, err)
			}
			changed()
		}
	}
}
