// Starts Swagger UI on the service's own description. Nothing is loaded from elsewhere.
"use strict";
window.addEventListener("DOMContentLoaded", () => {
  document.documentElement.classList.toggle("dark-mode", matchMedia("(prefers-color-scheme: dark)").matches);
  SwaggerUIBundle({
    url: "/openapi.json",
    dom_id: "#viewer",
    deepLinking: true,
    docExpansion: "list",
    defaultModelsExpandDepth: 0,
    validatorUrl: null,
  });
});
