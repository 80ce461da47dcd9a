package faults

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"sync"
)

// A scene needs addresses of its own, so each is in a process with a namespace of its own: the
// present program again, told so by sceneEnv. Over its standard input come names of rows, and over
// its standard output go the results.
const (
	sceneEnv     = "SLICEFEED_FAULTS_SCENE"
	resultPrefix = "faults: " // of the lines that are results
)

// played is what a scene says of a row.
type played struct {
	Result Result `json:"result"`
	Error  string `json:"error,omitempty"`
	Last   bool   `json:"last,omitempty"` // the scene cannot be used any more
}

// stagehand plays the rows that it is told, on one scene, until there are no more.
func stagehand(ctx context.Context, in io.Reader, out io.Writer) (err error) {
	scene, err := open(ctx)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, scene.close()) }()
	rows := map[string]Row{}
	for _, row := range Rows() {
		rows[row.Name] = row
	}
	names := bufio.NewScanner(in)
	for names.Scan() {
		row, ok := rows[names.Text()]
		if !ok {
			return fmt.Errorf("there is no row %q", names.Text())
		}
		one := scene.perform(ctx, row)
		raw, err := json.Marshal(one)
		if err != nil {
			return err
		}
		if _, err := fmt.Fprintf(out, "%s%s\n", resultPrefix, raw); err != nil || one.Last {
			return err
		}
	}
	return names.Err()
}

// perform plays a row, and readies the scene for the next one.
func (s *Scene) perform(ctx context.Context, row Row) played {
	var one played
	var err error
	if one.Result, err = s.Play(ctx, row); err != nil {
		one.Error = err.Error() + s.tails()
	}
	if one.Last = row.Spoils; one.Last {
		return one
	}
	if err := s.Reset(ctx); err != nil {
		one.Last = true
		one.Error = strings.TrimSpace(one.Error + "\nafterwards: " + err.Error() + s.tails())
	}
	return one
}

// tails is what the halves said last, for whoever reads about a failure.
func (s *Scene) tails() string {
	var text strings.Builder
	for _, half := range s.Halves() {
		text.WriteString(half.Tail())
	}
	return text.String()
}

// company plays rows on so many scenes side by side. Done is told of each, one at a time.
func company(ctx context.Context, scenes int, rows []Row, done func(played)) error {
	queue := make(chan Row, len(rows))
	for _, row := range rows {
		queue <- row
	}
	close(queue)
	var mu sync.Mutex
	var errs []error
	var all sync.WaitGroup
	for range min(scenes, len(rows)) {
		all.Go(func() {
			for again := true; again; {
				var err error
				again, err = troupe(ctx, queue, func(p played) {
					mu.Lock()
					defer mu.Unlock()
					done(p)
				})
				mu.Lock()
				errs = append(errs, err)
				mu.Unlock()
			}
		})
	}
	all.Wait()
	return errors.Join(errs...)
}

// troupe plays rows on one scene until there are none left, or the scene is spoilt: then again is true.
func troupe(ctx context.Context, queue <-chan Row, done func(played)) (again bool, err error) {
	row, ok := <-queue
	if !ok {
		return false, nil
	}
	cmd := exec.CommandContext(ctx, "/proc/self/exe", "-test.run=^TestMain$", "-test.timeout=0")
	cmd.Env = append(os.Environ(), sceneEnv+"=1")
	cmd.Stderr = os.Stderr
	in, err := cmd.StdinPipe()
	if err != nil {
		return false, err
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		return false, err
	}
	if err := cmd.Start(); err != nil {
		return false, fmt.Errorf("start a scene: %w", err)
	}
	defer func() { err = errors.Join(err, in.Close(), cmd.Wait()) }()
	lines := bufio.NewScanner(out)
	lines.Buffer(nil, 1<<20)
	for ok {
		if _, err := fmt.Fprintln(in, row.Name); err != nil {
			return false, fmt.Errorf("play %q: %w", row.Name, err)
		}
		answer, err := next(lines)
		if err != nil {
			return false, fmt.Errorf("play %q: %w", row.Name, err)
		}
		done(answer)
		if answer.Last {
			return true, nil
		}
		row, ok = <-queue
	}
	return false, nil
}

func next(lines *bufio.Scanner) (played, error) {
	for lines.Scan() {
		if raw, ok := strings.CutPrefix(lines.Text(), resultPrefix); ok {
			var one played
			return one, json.Unmarshal([]byte(raw), &one)
		}
	}
	return played{}, errors.Join(errors.New("the scene has ended"), lines.Err())
}
