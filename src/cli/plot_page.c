/*
 * plot_page.c - curves as SVG, and as an HTML page that shows the values under the pointer.
 * Self-contained: no external script, font or style. Long series are thinned to the minimum and
 * maximum of each pixel column, so spikes stay visible.
 */
#include <math.h>
#include <stdint.h>
#include <string.h>

#include "cli/format.h"
#include "cli/page.h"
#include "base/safe_text.h"
#include "cli/plot.h"

enum { WIDTH = 860, HEIGHT = 460, LEFT = 70, RIGHT = 20, TOP = 44, BOTTOM = 52 };

/* Okabe and Ito's colours, which nearly all people can distinguish. */
static const char *const colours[] = { "#0072b2", "#e69f00", "#009e73", "#d55e00",
                                       "#cc79a7", "#56b4e9", "#8c6d31", "#999999" };

static double pixel_x(cli_range x, double value)
{
    return LEFT + cli_place(x, false, value) * (WIDTH - LEFT - RIGHT);
}

static double pixel_y(const cli_plot *plot, cli_range y, double value)
{
    return HEIGHT - BOTTOM - cli_place(y, plot->log_y, value) * (HEIGHT - TOP - BOTTOM);
}

static void add_axes(uni__text *out, const cli_plot *plot, cli_range x, cli_range y)
{
    double ticks[16];
    char text[CLI_SHORT];
    int count = cli_ticks(y, plot->log_y, 7, ticks);
    for (int i = 0; i < count; i++) {
        double at = pixel_y(plot, y, ticks[i]);
        uni__text_add_format(out,
                             "<line class=\"grid\" x1=\"%d\" x2=\"%d\" y1=\"%.1f\" y2=\"%.1f\"/>"
                             "<text x=\"%d\" y=\"%.1f\" text-anchor=\"end\">%s</text>\n",
                             LEFT, WIDTH - RIGHT, at, at, LEFT - 8, at + 4,
                             cli_tick(ticks[i], text));
    }
    count = cli_ticks_of_x(plot, x, 9, ticks);
    for (int i = 0; i < count; i++)
        uni__text_add_format(out, "<text x=\"%.1f\" y=\"%d\" text-anchor=\"middle\">%s</text>\n",
                             pixel_x(x, ticks[i]), HEIGHT - BOTTOM + 18, cli_tick(ticks[i], text));
    uni__text_add_format(out,
                         "<path class=\"axis\" d=\"M%d %dV%dH%d\"/><text x=\"%d\" y=\"%d\" "
                         "text-anchor=\"middle\">",
                         LEFT, TOP, HEIGHT - BOTTOM, WIDTH - RIGHT, (LEFT + WIDTH - RIGHT) / 2,
                         HEIGHT - 12);
    cli_page_escape(out, plot->x_label);
    uni__text_add_string(out, "</text>\n");
}

static void add_point(uni__text *out, double x, double y, bool *joined)
{
    uni__text_add_format(out, "%c%.1f %.1f", *joined ? 'L' : 'M', x, y);
    *joined = true;
}

/* One path. Points that share a pixel column are reduced to the first, smallest and largest. */
static void add_curve(uni__text *out, const cli_plot *plot, size_t index, cli_range x, cli_range y)
{
    const cli_series *series = &plot->series[index];
    cli_side before = CLI_GAP;
    size_t i = 0;
    uni__text_add_format(out, "<path class=\"curve\" stroke=\"%s\" d=\"", colours[index % 8]);
    while (i < series->count) {
        cli_side side = cli_side_of(y, plot->log_y, series->y[i]);
        bool joined = before != CLI_GAP && (side == CLI_INSIDE || side != before);
        before = side;
        if (side == CLI_GAP) {
            i++;
            continue;
        }
        double at = pixel_x(x, series->x[i]), low = series->y[i], high = low;
        size_t next = i + 1;
        while (next < series->count && pixel_x(x, series->x[next]) - at < 0.5 &&
               cli_side_of(y, plot->log_y, series->y[next]) == side) {
            low = series->y[next] < low ? series->y[next] : low;
            high = series->y[next] > high ? series->y[next] : high;
            next++;
        }
        add_point(out, at, pixel_y(plot, y, series->y[i]), &joined);
        if (low < series->y[i])
            add_point(out, at, pixel_y(plot, y, low), &joined);
        if (high > series->y[i])
            add_point(out, at, pixel_y(plot, y, high), &joined);
        i = next;
    }
    uni__text_add_string(out, "\"/>\n");
}

/* Marks at the edge for points outside the axis, one per cluster. */
static size_t add_marks(uni__text *out, const cli_plot *plot, size_t index, cli_range x,
                        cli_range y)
{
    const cli_series *series = &plot->series[index];
    double last[2] = { -INFINITY, -INFINITY };
    size_t outside = 0;
    uni__text_add_format(out, "<path class=\"edge\" fill=\"%s\" d=\"", colours[index % 8]);
    for (size_t i = 0; i < series->count; i++) {
        cli_side side = cli_side_of(y, plot->log_y, series->y[i]);
        if (side == CLI_INSIDE || side == CLI_GAP)
            continue;
        double at = pixel_x(x, series->x[i]), *before = &last[side == CLI_ABOVE];
        outside++;
        if (fabs(at - *before) < 4)
            continue;
        cli_page_edge_mark(out, at, pixel_y(plot, y, series->y[i]), side == CLI_ABOVE);
        *before = at;
    }
    uni__text_add_string(out, "\"/>\n");
    return outside;
}

/* Position of the legend: the corner that the curves leave free, or touch least. */
typedef struct legend_box {
    double left, top, right, bottom;
} legend_box;

enum { LEGEND_LINE = 18, LEGEND_MOST = 16, LEGEND_LETTER = 7, LEGEND_MARK = 44 };

static legend_box corner(const cli_plot *plot, int which)
{
    size_t longest = 0, lines = plot->num_series < LEGEND_MOST ? plot->num_series : LEGEND_MOST;
    for (size_t i = 0; i < lines; i++)
        longest = strlen(plot->series[i].label) > longest ? strlen(plot->series[i].label) : longest;
    double width = LEGEND_MARK + LEGEND_LETTER * (double)longest;
    double height = LEGEND_LINE * (double)lines;
    double left = which % 2 ? LEFT + 8 : WIDTH - RIGHT - width;
    double top = which / 2 ? HEIGHT - BOTTOM - height - 6 : TOP;
    return (legend_box){ left, top, left + width, top + height };
}

/* How much of the curves lies in the box; they are straight between two points. */
static size_t covered(const cli_plot *plot, cli_range x, cli_range y, legend_box box)
{
    enum { PARTS = 16 };
    size_t hits = 0;
    for (size_t n = 0; n < plot->num_series; n++) {
        const cli_series *series = &plot->series[n];
        size_t step = series->count / 500 + 1;
        for (size_t i = 0; i < series->count; i += step) {
            size_t next = i + step < series->count ? i + step : i;
            double x0 = pixel_x(x, series->x[i]), x1 = pixel_x(x, series->x[next]);
            double y0 = pixel_y(plot, y, series->y[i]), y1 = pixel_y(plot, y, series->y[next]);
            for (int part = 0; part < PARTS; part++) {
                double px = x0 + (x1 - x0) * part / PARTS, py = y0 + (y1 - y0) * part / PARTS;
                hits += px > box.left && px < box.right && py > box.top && py < box.bottom;
            }
        }
    }
    return hits;
}

static void add_legend(uni__text *out, const cli_plot *plot, cli_range x, cli_range y)
{
    int chosen = 0;
    size_t least = SIZE_MAX;
    for (int which = 0; which < 4 && least; which++) {
        size_t hits = covered(plot, x, y, corner(plot, which));
        chosen = hits < least ? which : chosen;
        least = hits < least ? hits : least;
    }
    legend_box box = corner(plot, chosen);
    for (size_t i = 0; i < plot->num_series && i < LEGEND_MOST; i++) {
        double middle = box.top + 8 + (double)i * LEGEND_LINE;
        uni__text_add_format(out,
                             "<line x1=\"%.1f\" x2=\"%.1f\" y1=\"%.1f\" y2=\"%.1f\" stroke=\"%s\" "
                             "stroke-width=\"3\"/><text class=\"legend\" x=\"%.1f\" y=\"%.1f\">",
                             box.left, box.left + 22, middle, middle, colours[i % 8], box.left + 30,
                             middle + 4);
        cli_page_escape(out, plot->series[i].label);
        uni__text_add_string(out, "</text>\n");
    }
}

void cli_plot_svg(const cli_plot *plot, uni__text *out)
{
    cli_range x, y;
    uni__text_add_format(
        out,
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 %d %d\" font-family=\"system-ui, "
        "sans-serif\" "
        "font-size=\"12\" role=\"img\">\n<style>.paper{fill:#fff}text{fill:#333}.grid{stroke:#ddd}"
        ".axis{stroke:#888;fill:none}.legend{paint-order:stroke;stroke:#fff;stroke-width:3px}."
        "curve{fill:none;stroke-width:1.8;stroke-linejoin:round}"
        "@media(prefers-color-scheme:dark){.paper{fill:#16181c}text{fill:#ccc}.grid{stroke:#333}"
        ".legend{stroke:#16181c}}</style>\n"
        "<rect class=\"paper\" width=\"%d\" height=\"%d\"/>\n"
        "<text x=\"%d\" y=\"26\" font-size=\"16\" font-weight=\"600\">",
        WIDTH, HEIGHT, WIDTH, HEIGHT, LEFT);
    cli_page_escape(out, plot->title);
    uni__text_add_string(out, plot->log_y ? " (logarithmic)</text>\n" : "</text>\n");
    if (cli_plot_ranges(plot, &x, &y)) {
        add_axes(out, plot, x, y);
        size_t outside = 0;
        for (size_t i = 0; i < plot->num_series; i++) {
            add_curve(out, plot, i, x, y);
            outside += add_marks(out, plot, i, x, y);
        }
        add_legend(out, plot, x, y);
        if (outside)
            uni__text_add_format(out,
                                 "<text x=\"%d\" y=\"26\" text-anchor=\"end\">%zu point%s outside "
                                 "the axis, drawn at its edge</text>\n",
                                 WIDTH - RIGHT, outside, outside == 1 ? "" : "s");
    } else {
        uni__text_add_format(out, "<text x=\"%d\" y=\"%d\">no finite numbers to draw</text>\n",
                             LEFT, HEIGHT / 2);
    }
    uni__text_add_string(out, "<g id=\"cursor\"></g></svg>\n");
}

/* ---- the page ---- */

static const char page_head[] =
    "<!doctype html>\n<html lang=\"en\"><head><meta charset=\"utf-8\">\n"
    "<meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n"
    "<style>body{font:15px/1.5 system-ui,sans-serif;max-width:960px;margin:2em auto;padding:0 1em;"
    "background:#fff;color:#222}svg{width:100%;height:auto}table{border-collapse:collapse;width:"
    "100%}"
    "th,td{padding:.3em .6em;text-align:right;border-bottom:1px solid #8884}"
    "th:first-child,td:first-child{text-align:left}i{display:inline-block;width:1em;height:.25em;"
    "margin-right:.5em;vertical-align:middle}#now{min-height:1.5em;font-variant-numeric:tabular-"
    "nums}"
    "@media(prefers-color-scheme:dark){body{background:#16181c;color:#ccc}}</style>\n<title>";

/* Finds the point of every series nearest to the pointer, by bisection. */
static const char page_script[] =
    "const "
    "svg=document.querySelector('svg'),now=document.getElementById('now'),g=document."
    "getElementById('cursor');\n"
    "svg.addEventListener('mousemove',e=>{const p=new DOMPoint(e.clientX,e.clientY)"
    ".matrixTransform(svg.getScreenCTM().inverse());\n"
    "const x=D.x0+(p.x-D.l)/(D.w-D.l-D.r)*(D.x1-D.x0);let t=[],at=null;\n"
    "for(const s of D.s){let a=0,b=s.x.length-1;if(b<0)continue;while(b-a>1){const "
    "m=a+b>>1;s.x[m]<x?a=m:b=m}\n"
    "const i=Math.abs(s.x[a]-x)<Math.abs(s.x[b]-x)?a:b;at=at===null?s.x[i]:at;t.push(s.n+': '+"
    "(s.y[i]===null?'not finite':s.y[i]))}\n"
    "if(at===null)return;now.textContent=D.xl+' '+at+'   '+t.join('   ');\n"
    "const c=D.l+(at-D.x0)/(D.x1-D.x0)*(D.w-D.l-D.r);\n"
    "g.innerHTML='<line stroke=\"#888\" stroke-dasharray=\"3\" x1=\"'+c+'\" x2=\"'+c+'\" "
    "y1=\"'+D.t+'\" y2=\"'+(D.h-D.b)+'\"/>'});\n";

/* Quotes text for a script inside HTML: "</script>" cannot appear. */
static void add_script_string(uni__text *out, const char *text)
{
    uni__text quoted = { 0 }, safe = { 0 };
    uni__text_add_safe(&safe, text, strlen(text), "");
    uni__text_add_json_string(&quoted, safe.data ? safe.data : "", safe.size);
    uni__text_free(&safe);
    for (size_t i = 0; i < quoted.size; i++) {
        if (quoted.data[i] == '<')
            uni__text_add_string(out, "\\u003c");
        else
            uni__text_add(out, quoted.data + i, 1);
    }
    uni__text_free(&quoted);
}

/* At most 4000 points per series go into the page. */
static void add_data(uni__text *out, const cli_plot *plot, cli_range x)
{
    uni__text_add_format(out, "<script>\nconst D={l:%d,r:%d,t:%d,b:%d,w:%d,h:%d,x0:", LEFT, RIGHT,
                         TOP, BOTTOM, WIDTH, HEIGHT);
    uni__text_add_double(out, x.low);
    uni__text_add_string(out, ",x1:");
    uni__text_add_double(out, x.high);
    uni__text_add_string(out, ",xl:");
    add_script_string(out, plot->x_label);
    uni__text_add_string(out, ",s:[");
    for (size_t i = 0; i < plot->num_series; i++) {
        const cli_series *series = &plot->series[i];
        size_t step = series->count / 4000 + 1;
        uni__text_add_string(out, i ? ",{n:" : "{n:");
        add_script_string(out, series->label);
        for (int axis = 0; axis < 2; axis++) {
            uni__text_add_string(out, axis ? "],y:[" : ",x:[");
            for (size_t j = 0; j < series->count; j += step) {
                double value = axis ? series->y[j] : series->x[j];
                if (j)
                    uni__text_add_string(out, ",");
                if (isfinite(value))
                    uni__text_add_double(out, value);
                else
                    uni__text_add_string(out, "null");
            }
        }
        uni__text_add_string(out, "]}");
    }
    uni__text_add_string(out, "]};\n");
    uni__text_add_string(out, page_script);
    uni__text_add_string(out, "</script>\n");
}

static void add_table(uni__text *out, const cli_plot *plot, cli_range y)
{
    uni__text_add_string(
        out, "<table><tr><th>curve<th>points<th>last<th>min<th>max<th>not finite<th>outside the "
             "axis");
    uni__text_add_string(out, plot->log_y ? "<th>not above 0</tr>\n" : "</tr>\n");
    for (size_t i = 0; i < plot->num_series; i++) {
        cli_series_stats stats = cli_series_stats_of(plot, i, y);
        char last[CLI_SHORT], low[CLI_SHORT], high[CLI_SHORT];
        uni__text_add_format(out, "<tr><td><i style=\"background:%s\"></i>", colours[i % 8]);
        cli_page_escape(out, plot->series[i].label);
        uni__text_add_format(out, "<td>%zu<td>%s<td>%s<td>%s<td>%zu<td>%zu", plot->series[i].count,
                             cli_number(stats.last, last), cli_number(stats.low, low),
                             cli_number(stats.high, high), stats.gaps, stats.outside);
        if (plot->log_y)
            uni__text_add_format(out, "<td>%zu", stats.not_positive);
        uni__text_add_string(out, "</tr>\n");
    }
    uni__text_add_string(out, "</table>\n");
}

void cli_plot_html(const cli_plot *plot, uni__text *out)
{
    cli_range x, y;
    uni__text_add_string(out, page_head);
    cli_page_escape(out, plot->title);
    uni__text_add_string(out, "</title></head><body>\n");
    cli_plot_svg(plot, out);
    uni__text_add_string(out, "<p id=\"now\"></p>\n");
    bool drawn = cli_plot_ranges(plot, &x, &y);
    add_table(out, plot, y);
    if (drawn)
        add_data(out, plot, x);
    uni__text_add_string(out, "</body></html>\n");
}
