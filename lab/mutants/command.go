package mutants

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"sync/atomic"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/sync/errgroup"
)

// page is where the results are kept, from the root of the checkout.
const page = "docs/proof/mutants.md"

// Command is "lab mutants".
func Command() *cobra.Command {
	var root, simulation string
	var at, seeds int
	var update, worlds bool
	cmd := &cobra.Command{
		Use:   "mutants [name...]",
		Short: "Lay deliberate bugs over the product, one by one, and see which test catches each",
		RunE: func(cmd *cobra.Command, names []string) error {
			chosen := All()
			if len(names) > 0 {
				chosen = slices.DeleteFunc(chosen, func(m Mutant) bool { return !slices.Contains(names, m.Name) })
			}
			if update && worlds {
				return errors.New("--update wants the unit tests too: leave out --worlds")
			}
			if len(chosen) == 0 {
				return errors.New("no mutant of that name")
			}
			if _, err := os.Stat(filepath.Join(root, simulation)); err != nil {
				simulation = ""
			}
			for i := range chosen {
				if seeds > 0 {
					chosen[i].Seeds = seeds
				}
				if worlds {
					chosen[i].Suites = nil
				}
			}
			began := time.Now()
			results := make([]Result, len(chosen))
			var wrong atomic.Int32
			var group errgroup.Group
			group.SetLimit(at)
			for i, m := range chosen {
				group.Go(func() error {
					results[i] = Runner{Root: root, Simulation: simulation}.Try(cmd.Context(), m)
					if !results[i].Caught() {
						wrong.Add(1)
					}
					fmt.Fprintln(cmd.OutOrStdout(), Line(results[i]))
					return cmd.Context().Err()
				})
			}
			if err := group.Wait(); err != nil {
				return err
			}
			fmt.Fprintf(
				cmd.OutOrStdout(),
				"%d mutants, %d caught, in %s\n",
				len(chosen),
				len(chosen)-int(wrong.Load()),
				time.Since(began).Round(time.Second),
			)
			if n := wrong.Load(); n > 0 {
				return fmt.Errorf("%d mutants were not caught", n)
			}
			if update {
				return write(filepath.Join(root, page), results)
			}
			return nil
		},
	}
	cmd.Flags().StringVar(&root, "root", ".", "root of the checkout")
	cmd.Flags().
		StringVar(&simulation, "simulation", "lab/sim", "package of the simulation, from the root; one that is not there is not run")
	cmd.Flags().IntVar(&at, "at-once", 2, "mutants tried at the same time")
	cmd.Flags().BoolVar(&worlds, "worlds", false, "leave the unit tests out: try the simulation alone")
	cmd.Flags().IntVar(&seeds, "seeds", 0, "try the simulation with so many worlds, whatever it must catch; 0: only with what it must")
	cmd.Flags().BoolVar(&update, "update", false, "write what came of them into the table of "+page)
	return cmd
}

func write(path string, results []Result) error {
	text, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	table, err := Table(All(), results, string(text))
	if err != nil {
		return err
	}
	with, err := Insert(string(text), table)
	if err != nil {
		return fmt.Errorf("%s: %w", path, err)
	}
	return os.WriteFile(path, []byte(with), 0o600)
}
