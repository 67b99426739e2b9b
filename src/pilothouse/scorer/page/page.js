// SPDX-License-Identifier: Apache-2.0
// The scorer's page: three graphs and a table, asked for every two seconds. No dependencies.
'use strict';

const COLORS = ['#2563eb', '#d97706', '#059669', '#dc2626', '#7c3aed', '#0891b2',
  '#be185d', '#65a30d', '#9333ea', '#ea580c', '#0d9488', '#4b5563'];
const W = 480, H = 220, LEFT = 34, RIGHT = 8, TOP = 10, BOTTOM = 22;

function element(name, attributes, text) {
  const made = document.createElementNS('http://www.w3.org/2000/svg', name);
  for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
  if (text !== undefined) made.textContent = text;
  return made;
}

function niceTop(most) {
  if (most <= 4) return 4;
  const power = 10 ** Math.floor(Math.log10(most));
  return [1, 2, 5, 10].map((step) => step * power).find((top) => top >= most);
}

/** Draws lines of [x, y] points on one scale; y begins at zero. */
function draw(svg, lines, labels) {
  svg.setAttribute('viewBox', `0 0 ${W} ${H}`);
  svg.replaceChildren();
  const points = lines.flatMap((line) => line.points);
  if (points.length === 0) {
    svg.append(element('text', { x: W / 2, y: H / 2, 'text-anchor': 'middle' }, 'nothing yet'));
    return;
  }
  const xs = points.map((p) => p[0]);
  const low = Math.min(...xs), high = Math.max(...xs, low + 1);
  const top = niceTop(Math.max(...points.map((p) => p[1])));
  const x = (value) => LEFT + (value - low) / (high - low) * (W - LEFT - RIGHT);
  const y = (value) => H - BOTTOM - value / top * (H - TOP - BOTTOM);
  for (const share of [0, 0.25, 0.5, 0.75, 1]) {
    const at = y(top * share);
    svg.append(element('line', { x1: LEFT, x2: W - RIGHT, y1: at, y2: at, stroke: '#8884' }));
    svg.append(element('text', { x: LEFT - 5, y: at + 4, 'text-anchor': 'end' }, String(top * share)));
  }
  svg.append(element('text', { x: LEFT, y: H - 5 }, labels[0]));
  svg.append(element('text', { x: W - RIGHT, y: H - 5, 'text-anchor': 'end' }, labels[1]));
  for (const line of lines) {
    if (line.dots) {
      for (const [a, b] of line.points) svg.append(element('circle', { cx: x(a), cy: y(b), r: 2.5, fill: line.color }));
      continue;
    }
    const path = line.points.map(([a, b], i) => `${i ? 'L' : 'M'}${x(a).toFixed(1)} ${y(b).toFixed(1)}`).join('');
    svg.append(element('path', { d: path, fill: 'none', stroke: line.color, 'stroke-width': 2 }));
  }
}

function showGraphs(graphs) {
  const times = graphs.seconds_ago.map((ago) => -ago);
  const span = times.length ? `${Math.round(-times[0])} s ago` : '';
  const names = Object.keys(graphs.pods_per_node);
  const perNode = names.map((name, i) => ({
    color: COLORS[i % COLORS.length], points: graphs.pods_per_node[name].map((v, k) => [times[k], v]),
  }));
  draw(document.getElementById('pods'), perNode, [span, 'now']);
  document.getElementById('pods-legend').replaceChildren(...names.map((name, i) => {
    const item = document.createElement('li');
    const mark = element('svg', { width: 10, height: 10, viewBox: '0 0 10 10' });
    mark.append(element('rect', { width: 10, height: 10, rx: 2, fill: COLORS[i % COLORS.length] }));
    item.append(mark, ` ${name}`);
    return item;
  }));
  draw(document.getElementById('active'),
    [{ color: COLORS[0], points: graphs.active_nodes.map((v, k) => [times[k], v]) }], [span, 'now']);
  const chosen = graphs.chosen_latency_ms;
  draw(document.getElementById('latency'),
    [{ color: COLORS[3], dots: true, points: chosen.map((c, k) => [k, c.ms]) }],
    [chosen.length ? 'first' : '', chosen.length ? 'latest' : '']);
  const dropped = graphs.records_dropped ? `, ${graphs.records_dropped} records dropped` : '';
  document.getElementById('summary').textContent =
    `Policy ${graphs.policy ?? 'none'}, ${graphs.placements} placements recorded${dropped}.`;
}

function cell(text) {
  const made = document.createElement('td');
  made.textContent = text;
  return made;
}

function showNodes(found) {
  document.getElementById('nodes').replaceChildren(...found.nodes.slice(0, 100).map((n) => {
    const row = document.createElement('tr');
    const share = (part, whole) => whole ? `${Math.round(part / whole * 100)} %` : '–';
    row.append(
      cell(n.node + (n.avoided ? ' (avoided)' : '') + (n.ready ? '' : ' (not ready)')),
      cell(`${n.counted_pods} of ${n.pods}`),
      cell(share(n.cpu_requested_millicores, n.cpu_allocatable_millicores)),
      cell(share(n.memory_requested_mib, n.memory_allocatable_mib)),
      cell(n.latency_ms === null ? 'unknown' : `${n.latency_ms.toFixed(1)} ms`),
      cell(n.latency_age_seconds === null ? '' : `${n.latency_age_seconds.toFixed(0)} s`));
    return row;
  }));
}

async function refresh() {
  try {
    const [graphs, nodes] = await Promise.all(
      ['/v1/graphs', '/v1/nodes'].map(async (path) => (await fetch(path)).json()));
    showGraphs(graphs);
    showNodes(nodes);
  } catch (error) {
    document.getElementById('summary').textContent = `The scorer does not answer: ${error}`;
  }
}

refresh();
setInterval(refresh, 2000);
