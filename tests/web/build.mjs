// Bundles files of the guide: `node build.mjs FOLDER ENTRY=OUTPUT…`. An OUTPUT in .js is for browsers, in .mjs for Node.
import { createRequire } from 'node:module';
import { readFile } from 'node:fs/promises';

const [folder, ...entries] = process.argv.slice(2), load = createRequire(`${folder}/`);
const { build } = load('esbuild'), { parse, compileScript } = load('vue/compiler-sfc');

// Compiles a single-file component with `<script setup>`, as Vite does.
const components = ssr => ({
  name: 'vue',
  setup({ onLoad }) {
    onLoad({ filter: /\.vue$/ }, async ({ path }) => {
      const { descriptor, errors } = parse(await readFile(path, 'utf8'), { filename: path });
      if (errors.length) throw errors[0];
      const templateOptions = { ssr, ssrCssVars: [], compilerOptions: { isCustomElement: tag => tag === 'tidings-inbox' } };
      return { contents: compileScript(descriptor, { id: 'app', inlineTemplate: true, templateOptions }).content, loader: 'js' };
    });
  },
});

for (const [entry, output] of entries.map(pair => pair.split('='))) {
  const isForNode = output.endsWith('.mjs');
  await build({
    absWorkingDir: folder, entryPoints: [entry], outfile: output, bundle: true, format: 'esm', jsx: 'automatic', logLevel: 'warning',
    platform: isForNode ? 'node' : 'browser', plugins: [components(isForNode)],
    define: {
      'process.env.NODE_ENV': '"development"', __VUE_OPTIONS_API__: 'true', __VUE_PROD_DEVTOOLS__: 'false',
      __VUE_PROD_HYDRATION_MISMATCH_DETAILS__: 'true',
    },
    ...isForNode && { banner: { js: "import { createRequire } from 'node:module'; const require = createRequire(import.meta.url);" } },
  });
}
