// Package runbooks runs the commands of docs/operate/runbooks, of the README's part on deploying, and of three pages of
// docs/deploy (uninstalling, plain manifests, cert-manager), in the order of each page, in a world made of real parts: two
// API servers with RBAC, the charts installed by helm, the halves in Pods, an emulated cloud, backends. It promises that a
// page whose command fails, or prints something else than the page shows, fails a test; it refuses pages with a command
// that no test can run. Of three more pages, on troubleshooting, guards and Services, only the commands are run: what they
// print there are examples.
//
// A page is a script:
//
//	```sh      a command, run by bash as it stands; its variables live until the page's end
//	```text    what the command before it prints, loosely: see Matches
//	<!-- lab: something happens -->     what the world does to the page's reader, by name
//	<!-- exit 1 -->     the next command ends with that code
//	<!-- until -->      the next command is repeated until it prints what is shown
package runbooks

import (
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"
)

// Step is one thing that a page does: a command or an event.
type Step struct {
	Line  int    // of the page, where the block or the comment begins
	Event string // name of what the world does; empty: it is a command

	Command string
	Output  string // what the page shows of it; empty: nothing
	Exit    int    // the code that it ends with
	Until   bool   // it is repeated until it prints what is shown
}

// Read reads the steps of a page, or of the part of it under one heading of the second level.
func Read(path, heading string) ([]Step, error) { return read(path, reader{heading: heading}) }

// ReadCommands reads the steps of a page whose outputs are examples: nothing is expected of what a command prints.
func ReadCommands(path string) ([]Step, error) { return read(path, reader{examples: true}) }

func read(path string, r reader) ([]Step, error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	steps, err := r.parse(string(text))
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	if len(steps) == 0 {
		return nil, fmt.Errorf("%s: has no command (under %q)", path, r.heading)
	}
	return steps, nil
}

// reader is where the parser is.
type reader struct {
	heading  string // of the part to read; empty: the whole page
	examples bool   // outputs are examples

	steps []Step
	next  Step // what comments have said of the next command
	asked bool // whether they have said anything
}

func (r *reader) parse(text string) ([]Step, error) {
	lines := strings.Split(text, "\n")
	inside := r.heading == ""
	for at := 0; at < len(lines); at++ {
		line := strings.TrimSpace(lines[at])
		if language, ok := strings.CutPrefix(line, "```"); ok {
			begun, indent := at, indentation(lines[at])
			var block []string
			for at++; at < len(lines) && strings.TrimSpace(lines[at]) != "```"; at++ {
				block = append(block, strings.TrimPrefix(lines[at], indent))
			}
			if at == len(lines) {
				return nil, fmt.Errorf("line %d: the block does not end", begun+1)
			}
			if !inside {
				continue
			}
			if err := r.block(begun+1, language, strings.Join(block, "\n")+"\n"); err != nil {
				return nil, err
			}
			continue
		}
		if title, ok := strings.CutPrefix(lines[at], "## "); ok && r.heading != "" {
			inside = title == r.heading
		}
		if comment, ok := strings.CutPrefix(line, "<!-- "); ok && inside {
			if err := r.comment(at+1, strings.TrimSuffix(comment, " -->")); err != nil {
				return nil, err
			}
		}
	}
	if r.asked {
		return nil, errors.New("the last comment is about a command that does not come")
	}
	return r.steps, nil
}

func indentation(line string) string { return line[:len(line)-len(strings.TrimLeft(line, " "))] }

func (r *reader) block(line int, language, text string) error {
	switch language {
	case "sh":
		step := r.next
		step.Line, step.Command = line, text
		r.steps, r.next, r.asked = append(r.steps, step), Step{}, false
	case "text":
		if r.examples {
			return nil
		}
		last := len(r.steps) - 1
		if last < 0 || r.steps[last].Event != "" || r.steps[last].Output != "" {
			return fmt.Errorf("line %d: output of no command", line)
		}
		r.steps[last].Output = text
	case "yaml", "":
		// For reading.
	default:
		return fmt.Errorf("line %d: a block of language %q: want sh, text or yaml", line, language)
	}
	return nil
}

func (r *reader) comment(line int, comment string) error {
	word, rest, _ := strings.Cut(comment, " ")
	switch word {
	case "lab:":
		if r.asked {
			return fmt.Errorf("line %d: a comment about a command is followed by no command", line)
		}
		r.steps = append(r.steps, Step{Line: line, Event: rest})
	case "exit":
		code, err := strconv.Atoi(rest)
		if err != nil {
			return fmt.Errorf("line %d: exit code %q", line, rest)
		}
		r.next.Exit, r.asked = code, true
	case "until":
		r.next.Until, r.asked = true, true
	default:
		// Other tests have comments of their own.
	}
	return nil
}
