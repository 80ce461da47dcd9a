// Draws a dashboard with Grafana's own components: @grafana/ui has the panels' insides and @grafana/data the
// transformations, units, thresholds and overrides. What Grafana's server adds around them is not there: variables,
// tooltips, menus. window.data has the dashboard, and for each panel with queries the answers of Prometheus.
import '@fontsource/inter/latin-400.css';
import '@fontsource/inter/latin-500.css';
import 'uplot/dist/uPlot.min.css';
import {
  applyFieldOverrides, createTheme, dateTime, FieldType, reduceField, standardFieldConfigEditorRegistry, standardTransformers,
  standardTransformersRegistry, ThemeContext, toDataFrame, transformDataFrame,
} from '@grafana/data';
import { BigValue, GlobalStyles, PanelChrome, Table, TimeSeries } from '@grafana/ui';
import React from 'react';
import { createRoot } from 'react-dom/client';

declare const window: any;

const theme = createTheme({ colors: { mode: 'light' } });
const columnWidth = 1320 / 24, rowHeight = 38, captionHeight = 60; // a row is as high as in Grafana

// The properties that overrides set.
const properties = ['unit', 'min', 'max', 'decimals', 'thresholds', 'mappings', 'displayName', 'noValue', 'color',
  'custom.cellOptions', 'custom.width', 'custom.minWidth', 'custom.align'];
standardFieldConfigEditorRegistry.setInit(() => properties.map((id) => ({
  id, name: id, path: id.replace('custom.', ''), isCustom: id.startsWith('custom.'),
  editor: () => null, override: () => null, process: (v) => v, shouldApply: () => true, settings: {},
})) as any);
const transformers = new Map(Object.values(standardTransformers).map((t) => [t.id, t]));
standardTransformersRegistry.setInit(() => [...transformers.values()].map((t) => ({ id: t.id, name: t.name, transformation: t, editor: () => null })) as any);

// frames are what Grafana's data source for Prometheus makes of the answers.
function frames(panel, answers) {
  const finite = (text) => (Number.isFinite(Number(text)) ? Number(text) : null); // as Grafana's panel does
  const config = () => ({ custom: structuredClone(panel.fieldConfig.defaults.custom) });
  return panel.targets.flatMap((target, i) => {
    const series = answers[i] ?? [];
    if (target.format === 'table') {
      const labels = [...new Set(series.flatMap((s) => Object.keys(s.metric)))].sort();
      const value = panel.targets.length > 1 ? `Value #${target.refId}` : 'Value';
      return [toDataFrame({ refId: target.refId, fields: [
        { name: 'Time', type: FieldType.time, values: series.map(() => window.data.end) }, // Grafana asks all of a panel at one time
        ...labels.map((name) => ({ name, type: FieldType.string, config: config(), values: series.map((s) => s.metric[name] ?? '') })),
        { name: value, type: FieldType.number, config: config(), values: series.map((s) => Number(s.value[1])) },
      ] })];
    }
    return series.map((s) => {
      const points = s.values ?? [s.value];
      const name = target.legendFormat === '__auto' ? '' : target.legendFormat.replace(/{{(\w+)}}/g, (_, label) => s.metric[label] ?? '').trim();
      return toDataFrame({ refId: target.refId, fields: [
        { name: 'Time', type: FieldType.time, config: { interval: 1000 }, values: points.map((p) => p[0] * 1000) },
        { name: 'Value', type: FieldType.number, labels: s.metric, config: { ...config(), displayNameFromDS: name }, values: points.map((p) => finite(p[1])) },
      ] });
    });
  });
}

function Inside({ panel, data, range, width, height }) {
  if (!data.length || !data[0].length) {
    return <>{panel.fieldConfig.defaults.noValue ?? 'No data'}</>;
  }
  const options = panel.options;
  switch (panel.type) {
    case 'timeseries':
      return <TimeSeries frames={data} structureRev={1} timeRange={range} timeZone="utc" width={width} height={height} legend={options.legend} options={options}>{() => null}</TimeSeries>;
    case 'table':
      return <Table data={data[0]} width={width} height={height} cellHeight={options.cellHeight} />;
    case 'stat':
      return data.map((frame, i) => {
        const field = frame.fields[1], value = reduceField({ field, reducers: options.reduceOptions.calcs })[options.reduceOptions.calcs[0]];
        const shown = { ...field.display(value), title: field.config.displayNameFromDS };
        return <BigValue key={i} theme={theme} width={width / data.length} height={height} value={shown} count={data.length}
          colorMode={options.colorMode} textMode={options.textMode} graphMode={options.graphMode} justifyMode={options.justifyMode} />;
      });
  }
  throw new Error(`a panel of type ${panel.type}`);
}

function Panel({ panel, answers, range }) {
  const [data, setData] = React.useState(null);
  React.useEffect(() => {
    const subscription = transformDataFrame(panel.transformations ?? [], frames(panel, answers)).subscribe((transformed) =>
      setData(applyFieldOverrides({ data: transformed, fieldConfig: panel.fieldConfig, replaceVariables: (v) => v, theme, timeZone: 'utc' })));
    return () => subscription.unsubscribe();
  }, []);
  return <PanelChrome title={panel.title} width={panel.gridPos.w * columnWidth - 8} height={panel.gridPos.h * rowHeight - 8}>
    {(width, height) => data && <div style={{ display: 'flex' }}><Inside {...{ panel, data, range, width, height }} /></div>}
  </PanelChrome>;
}

function Board({ board, answers, begin, end }) {
  const from = dateTime(begin), to = dateTime(end);
  const queried = board.panels.filter((p) => p.type !== 'row');
  return <ThemeContext.Provider value={theme}>
    <GlobalStyles />
    <div style={{ padding: '6px 8px', height: captionHeight }}>
      <h4>{board.title}</h4>
      Drawn by Grafana's components (@grafana/ui 10.4.2) outside of Grafana, from a test run with faults.
    </div>
    {board.panels.map((p) => <div key={p.id} style={{ position: 'absolute', left: p.gridPos.x * columnWidth + 4, top: p.gridPos.y * rowHeight + captionHeight + 4 }}>
      {p.type === 'row' ? <h5>{p.title}</h5> : <Panel panel={p} answers={answers[queried.indexOf(p)]} range={{ from, to, raw: { from, to } }} />}
    </div>)}
  </ThemeContext.Provider>;
}

// Texts are measured before they are drawn, so the fonts come first.
Promise.all(['400 12px Inter', '500 12px Inter'].map((font) => document.fonts.load(font))).then(() =>
  createRoot(document.getElementById('board')).render(<Board {...window.data} />));
